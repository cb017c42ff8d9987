package replica

import (
	"fmt"
	"math/rand/v2"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// planted says which bug a simulation has.
type planted struct {
	reuseID      bool // a replica that has lost its memory continues under its old id
	confirmAlone bool // a leader confirms without asking anybody
	leadEarly    bool // a leader reports that it leads before it has applied an entry of its own term
	twoFounders  bool
	// Members change without a joint configuration. That does harm where voters are removed. From one voter to three it
	// does none, because a single voter applies at once what it commits.
	oneStep        bool
	forgetMembers  bool // a follower takes the contents of a snapshot and keeps its own members
	forgetSnapshot bool // a lost snapshot is not sent again
	keepLog        bool // applied entries stay in memory
	surviveEarly   bool // SurvivesLoss does not wait until the voters have applied a change
	storeLate      bool // an only voter stores what it has acknowledged after it has done so
	takeAny        bool // a learner takes over although it lacks entries
}

// profile is what can happen in a world. All fields are drawn from the seed.
type profile struct {
	machines, voters         int
	loss, repeats            float64 // of messages
	delay                    int     // of messages, in ticks, at most
	cuts, pauses, kills      float64 // probability of each in a tick
	rotates, shrinks, hands  float64 // replaced voters, changes to a single voter, handovers of leadership, in a tick
	writes                   float64 // per tick
	notices                  float64 // of a leader's end; a hundredth as often, in a tick, of one that goes on
	deaths                   float64 // of an only voter that a learner can replace, in a tick
	direct                   bool    // new voters are not learners first
	maxLog, maxAppend, ticks int
}

// world simulates a group of replicas, one for each running machine, and their clients. A tick of the world is one of
// each replica that is not paused.
type world struct {
	seed  uint64
	rng   *rand.Rand
	plant planted
	cfg   profile
	check checker

	now     int
	healed  bool
	lastID  ID
	hosts   []*host
	packets []packet
	cut     map[[2]int]int // from one machine to another, until this tick
	orphans *Acknowledged  // what the only voter had stored when it died; nil unless a learner has to take over
	tracing bool
	trace   []string
}

// host is a machine with its replica.
type host struct {
	index  int
	r      *Replica
	paused int // until this tick
	dead   int // until this tick, at which a new replica starts
	role   Role
	ops    map[Ticket]*operation
	agreed uint64        // the applied index that was compared last
	stored *Acknowledged // what it leaves behind if it is killed
	before *Acknowledged // stored, before the latest Output
}

// operation is a request of a client.
type operation struct {
	name   string
	kind   byte // 'w'rite, 'c'onfirm, 'm'embers
	needed int  // how many writes were acknowledged when it began
	term   uint64
}

type packet struct {
	from, due int
	to        ID
	data      []byte
}

func newWorld(seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 7))
	pick := func(values ...float64) float64 { return values[rng.IntN(len(values))] }
	w := &world{seed: seed, rng: rng, cut: map[[2]int]int{}}
	w.cfg = profile{
		machines: 4 + rng.IntN(3), voters: 3, loss: pick(0, 0, 0.02, 0.2), repeats: pick(0, 0.1), delay: int(pick(1, 3, 8)),
		cuts: pick(0, 0.01, 0.04), pauses: pick(0, 0.01, 0.02), kills: pick(0, 0.02, 0.1), rotates: pick(0, 0.02, 0.1),
		shrinks: pick(0, 0, 0.02), hands: pick(0, 0, 0.02), writes: pick(0.1, 0.5), direct: rng.IntN(3) == 0,
		maxLog: int(pick(300, 2000, 20000)), maxAppend: int(pick(1, 200, 4000)), ticks: 300 + rng.IntN(300),
	}
	if rng.IntN(4) == 0 && w.cfg.machines > 5 {
		w.cfg.voters = 5
	}
	w.cfg.notices, w.cfg.deaths = pick(0, 0.5, 1), pick(0, 0, 0.1, 0.5)
	w.check.init()
	return w
}

func (w *world) logf(format string, args ...any) {
	if w.tracing {
		w.trace = append(w.trace, fmt.Sprintf("%4d ", w.now)+fmt.Sprintf(format, args...))
	}
}

// simulate runs the world until it ends or violates an invariant.
func (w *world) simulate() {
	for i := range w.cfg.machines {
		w.hosts = append(w.hosts, &host{index: i})
		w.start(w.hosts[i], 0, i == 0 || i == 1 && w.plant.twoFounders)
	}
	for w.now < w.cfg.ticks && w.check.broken == "" {
		w.disrupt()
		w.tick()
		w.takeOver()
		w.clients()
	}
	w.heal()
	for limit := w.now + 600; w.check.broken == "" && !w.converged(); {
		if w.tick(); w.now > limit {
			w.check.violated("the group is stuck: %s", w.describe())
		}
		w.takeOver()
		w.clients()
	}
	w.check.end(w)
}

// start begins a new replica on a machine, under a new id unless one is given.
func (w *world) start(h *host, id ID, founder bool) {
	if id == 0 {
		w.lastID++
		id = w.lastID
	}
	timeouts := rand.New(rand.NewPCG(w.seed, uint64(id)<<8|uint64(w.now&255)))
	r, err := New(Config{
		ID: id, Founder: founder, HeartbeatTicks: 2, ElectionTicks: 10, SnapshotTicks: 30,
		ElectionTimeout: func() int { return 10 + timeouts.IntN(12) }, MaxLog: w.cfg.maxLog, MaxAppend: w.cfg.maxAppend,
	})
	if err != nil {
		panic(err)
	}
	if w.plant.oneStep {
		r.applyMembers = func(cc *pb.ConfChangeV2) (members *pb.ConfState) {
			slices.SortStableFunc(cc.Changes, func(a, b *pb.ConfChangeSingle) int { // never without a voter
				return int(a.GetType()%2) - int(b.GetType()%2)
			})
			for _, c := range cc.Changes {
				members = r.node.ApplyConfChange(&pb.ConfChangeV2{Changes: []*pb.ConfChangeSingle{c}})
			}
			return members
		}
	}
	if w.plant.keepLog {
		r.cfg.MaxLog = 1 << 30
	}
	if w.plant.forgetSnapshot {
		r.cfg.SnapshotTicks = 1 << 30
	}
	*h = host{index: h.index, r: r, ops: map[Ticket]*operation{}}
	w.logf("machine %d starts replica %d", h.index, id)
	w.collect(h)
}

// host returns the running machine with that replica, or nil.
func (w *world) host(id ID) *host {
	for _, h := range w.hosts {
		if h.r != nil && h.r.id == id {
			return h
		}
	}
	return nil
}

// tick delivers messages and advances the replicas' time.
func (w *world) tick() {
	w.now++
	var due, later []packet
	for _, p := range w.packets {
		if p.due <= w.now {
			due = append(due, p)
		} else {
			later = append(later, p)
		}
	}
	w.packets = later
	w.rng.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
	for _, p := range due {
		w.deliver(p)
	}
	for _, h := range w.hosts {
		switch {
		case h.r == nil && h.dead <= w.now:
			w.start(h, 0, false)
		case h.r != nil && h.paused <= w.now:
			h.r.Tick()
			w.collect(h)
		}
	}
}

func (w *world) deliver(p packet) {
	h := w.host(p.to)
	if h == nil || w.cut[[2]int{p.from, h.index}] > w.now {
		return
	}
	if h.paused > w.now {
		p.due = h.paused
		w.packets = append(w.packets, p)
		return
	}
	m, err := Decode(p.data)
	if err != nil {
		w.check.violated("a message is refused: %v", err)
		return
	}
	members := proto.Clone(h.r.machine.members).(*pb.ConfState)
	if w.plant.forgetMembers && m.IsSnapshot() && len(members.GetVoters()) > 0 {
		m.raft.Snapshot.Metadata.ConfState, m.decoded.members = members, members
	}
	if err := h.r.Step(m); err != nil && w.plant == (planted{}) {
		w.check.violated("replica %d refuses a message: %v", h.r.id, err)
	}
	w.collect(h)
}

// collect takes a replica's output.
func (w *world) collect(h *host) {
	r := h.r
	if w.plant.leadEarly && r.leader {
		r.machine.term = r.term
	}
	out := r.Output()
	if out.Role != h.role {
		w.logf("replica %d: %+v", r.id, out.Role)
	}
	h.role = out.Role
	w.check.observe(w, h)
	w.store(h)
	for _, s := range out.Settled {
		op := h.ops[s.Ticket]
		delete(h.ops, s.Ticket)
		w.check.settled(w, h, op, s)
	}
	for _, m := range out.Messages {
		w.send(h, m)
	}
}

// send puts a message on the network, which may lose, delay or repeat it.
func (w *world) send(h *host, m Message) {
	if !w.healed && w.rng.Float64() < w.cfg.loss {
		return
	}
	data, err := m.Encode()
	if err != nil {
		panic(err)
	}
	copies := 1
	if !w.healed && w.rng.Float64() < w.cfg.repeats {
		copies = 2
	}
	for range copies {
		w.packets = append(w.packets, packet{
			from: h.index, to: m.To(), data: data, due: w.now + 1 + w.rng.IntN(w.cfg.delay),
		})
	}
}

// clients issues requests. A client asks any replica that believes it leads.
func (w *world) clients() {
	for _, h := range w.hosts {
		if h.r == nil || h.paused > w.now || !h.role.Leading {
			continue
		}
		if w.rng.Float64() < w.cfg.writes && (!w.healed || len(w.check.acked) < w.check.enough) {
			w.write(h)
		}
		if !w.healed && w.rng.Float64() < 0.3 || w.healed && len(h.r.confirms) == 0 {
			w.confirm(h)
		}
		w.manage(h)
		w.collect(h)
	}
}

func (w *world) write(h *host) {
	op := &operation{name: fmt.Sprintf("w%d", w.check.writes), kind: 'w', term: h.role.Term}
	w.check.writes++
	edits := []Edit{{Bucket: "log", Key: op.name, Value: []byte{1}}}
	register := Edit{Bucket: "registers", Key: fmt.Sprint(w.rng.IntN(4)), Value: []byte(op.name)}
	if w.rng.IntN(3) == 0 {
		register.Value = nil
	}
	t, err := h.r.Write(append(edits, register))
	if err != nil {
		w.check.refused[op.name] = true
		return
	}
	w.logf("replica %d writes %s", h.r.id, op.name)
	h.ops[t] = op
}

func (w *world) confirm(h *host) {
	needed := len(w.check.acked)
	if w.plant.confirmAlone {
		w.check.confirmed(w, h, needed)
		return
	}
	if t, err := h.r.Confirm(); err == nil {
		h.ops[t] = &operation{kind: 'c', needed: needed, term: h.role.Term}
	}
}

// describe returns the state of all replicas.
func (w *world) describe() string {
	text := ""
	for _, h := range w.hosts {
		if h.r != nil {
			s := h.r.Status()
			text += fmt.Sprintf("\n  replica %d: %+v; log %d to %d", h.r.id, s, h.r.log.index, h.r.log.last())
		}
	}
	return text
}
