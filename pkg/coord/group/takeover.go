package group

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

// A group with one voter ends with that voter's process, unless somebody proves that the process has ended. Then a
// learner that has every entry can replace the voter. The voter's guard waits for the process to end. The guard gives
// the learner the data that the voter stored last by Options.Store. The data shows whether the learner has every entry.

// store gives Options.Store the data that another member needs to take over. It does so before anything leaves this
// process that the data does not cover. The loop calls it.
func (m *Member) store() {
	if m.opts.Store == nil {
		return
	}
	var a replica.Acknowledged
	if m.replica != nil && !m.dissolving {
		a, _ = m.replica.Acknowledged()
	}
	if a == m.stored {
		return
	}
	m.stored = a
	if a == (replica.Acknowledged{}) {
		m.opts.Store(nil)
		return
	}
	m.opts.Store(encodeAcknowledged(m.instance, a))
}

// encodeAcknowledged encodes the data for Options.Store: the group's instance id, then uvarints.
func encodeAcknowledged(instance string, a replica.Acknowledged) []byte {
	b := appendString(nil, instance)
	for _, n := range []uint64{uint64(a.Leader), a.Term, a.Index} {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

func (d *decoder) acknowledged() (instance string, a replica.Acknowledged) {
	instance = d.text()
	a.Leader, a.Term, a.Index = replica.ID(d.number()), d.number(), d.number()
	return instance, a
}

// handleTakeOver answers a request to take over. If this member agrees, it answers once it serves clients.
func (m *Member) handleTakeOver(in incoming) {
	refusal := m.takeOver(in)
	if refusal == "" {
		m.flush()
	}
	s := m.serving
	m.running.Go(func() {
		if refusal == "" && s != nil {
			select {
			case <-s.begun:
			case <-m.done:
			}
		}
		in.answer <- frame{kind: frameAnswer, label: shorten(refusal, maxHello/2)}
	})
}

// takeOver replaces a leader whose process has ended. It returns the reason if it refuses, or "".
func (m *Member) takeOver(in incoming) string {
	d := decoder{rest: in.frame.message, ok: true}
	instance, a := d.acknowledged()
	if !d.done() {
		return "the request is malformed"
	}
	switch _, leaving := m.manager.departs[m.id]; {
	case m.replica == nil || m.instance != instance:
		return "this node is not in the group"
	case m.gone || leaving:
		return "this node leaves the group"
	case m.opts.MayTakeOver != nil && !m.opts.MayTakeOver(instance):
		return "this node belongs to another group"
	case m.opts.TakeOverTime > 0 && time.Since(m.heardAt) > m.opts.TakeOverTime:
		return "too much time has passed since this node has heard from the agent that kept the store"
	}
	status, former := m.replica.Status(), m.addrOf(a.Leader)
	switch err := m.replica.TakeOver(a); {
	case errors.Is(err, replica.ErrLacksEntries):
		m.log.Debug().Err(err).Msg("does not take over the job's store yet")
		return lacksEntries
	case err != nil:
		return err.Error()
	}
	m.log.Info().Str("from", former).
		Msg("this node keeps the job's store from now on: the agent that kept it was killed, and its guard has said so")
	m.forget(status, []replica.ID{a.Leader}, []replica.ID{a.Leader})
	return ""
}

// lacksEntries is a constant, because TakeOver compares the reply with it.
const lacksEntries = "this node lacks entries of the agent that kept the store"

// ErrRefused is the error of TakeOver if the member has refused. ErrNotYet is the error if the member may agree a
// moment later, because it may still be reading data from the voter.
var (
	ErrRefused = errors.New("the node does not take over the job's store")
	ErrNotYet  = fmt.Errorf("%w yet", ErrRefused)
)

// TakeOver asks the member at the address in opts to replace a voter whose process has ended. stored is the data that
// Options.Store of that process received last. At most one member may agree, and nothing may act as that voter any
// more. TakeOver calls before after connecting and before sending anything. After [ErrRefused], an error of before, or
// an error of [coord.DialMember], the member has not taken over. After any other error it may have.
func TakeOver(ctx context.Context, opts coord.DialOptions, stored []byte, before func() error) error {
	nc, err := coord.DialMember(ctx, opts)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := before(); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if at, ok := ctx.Deadline(); ok {
		nc.SetDeadline(at)
	}
	request := append(frame{kind: frameHello}.encode(), frame{kind: frameTakeOver, message: stored}.encode()...)
	if _, err := nc.Write(request); err != nil {
		return err
	}
	answer, err := readFrame(nc, maxHello)
	switch {
	case err != nil:
		return err
	case answer.kind != frameAnswer:
		return errFrame
	case answer.label == lacksEntries:
		return ErrNotYet
	case answer.label != "":
		return fmt.Errorf("%w: %s", ErrRefused, answer.label)
	}
	return nil
}
