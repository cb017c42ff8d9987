package coord

// batchPart is one frame of a batch: of a large one the events come in several.
type batchPart struct {
	watch int64
	more  bool // it is not the last
	batch Batch
	fresh []bool // one for each event, see core.take
}

// appendBatch appends a batch, in frames of about batchFrame bytes, or of one event that is larger.
func appendBatch(b []byte, watch int64, batch Batch, fresh []bool) []byte {
	for {
		n, size := 0, 0
		for n < len(batch.Events) && (n == 0 || size < batchFrame) {
			size += len(batch.Events[n].Key) + len(batch.Events[n].Value)
			n++
		}
		part := batchPart{watch: watch, more: n < len(batch.Events), batch: batch, fresh: fresh[:n]}
		part.batch.Events = batch.Events[:n]
		b = appendPart(b, part)
		if !part.more {
			return b
		}
		batch.Events, fresh = batch.Events[n:], fresh[n:]
	}
}

func appendPart(b []byte, p batchPart) []byte {
	begin := len(b)
	b = appendNumber(beginFrame(b, kindBatch), p.watch)
	var flags byte
	if p.batch.Resync {
		flags |= flagResync
	}
	if p.more {
		flags |= flagMore
	}
	b = appendNumber(append(b, flags), p.batch.Revision)
	b = appendNumber(b, len(p.batch.Events))
	for i, e := range p.batch.Events {
		flags := byte(0)
		if e.Deleted {
			flags |= flagDeleted
		}
		if p.fresh[i] {
			flags |= flagFresh
		}
		b = appendString(append(b, flags), e.Key)
		b = appendBytes(appendNumber(b, e.Create), e.Value)
	}
	return endFrame(b, begin)
}

func decodePart(body []byte) (p batchPart, err error) {
	in := &fields{b: body}
	p.watch = in.number()
	flags := in.byte()
	p.batch.Resync, p.more = flags&flagResync != 0, flags&flagMore != 0
	p.batch.Revision = Revision(in.number())
	if n := in.count(4); n > 0 {
		p.batch.Events, p.fresh = make([]Event, n), make([]bool, n)
	}
	for i := range p.batch.Events {
		flags := in.byte()
		p.fresh[i] = flags&flagFresh != 0
		p.batch.Events[i] = Event{
			Deleted: flags&flagDeleted != 0, Key: in.string(), Create: Revision(in.number()), Value: in.value(),
		}
	}
	return p, in.end()
}
