package events

import "slices"

// Clone gives a run that stands where this one stands: each may take events that the other never sees.
func (r *Run) Clone() *Run {
	c := *r
	c.Stages = slices.Clone(r.Stages) // what a Stand points to never changes
	c.ready, c.settled, c.doomed = slices.Clone(r.ready), slices.Clone(r.settled), slices.Clone(r.doomed)
	return &c
}

// Clone gives a replayer that stands where this one stands.
func (p *Replayer) Clone() *Replayer {
	return &Replayer{run: p.run.Clone(), due: slices.Clone(p.due), next: p.next}
}

// Due gives what must follow the events that were taken, in order, as the engine would record it now.
func (p *Replayer) Due() []Decision {
	if p.next == len(p.due) {
		c := p.run.Clone() // deciding uses up what is due
		return c.appendDecisions(nil)
	}
	return slices.Clone(p.due[p.next:])
}

// Describe names what the decision leads to, as "stage.skipped b" or "run.completed".
func (d Decision) Describe(r *Run) string { return d.text(r) }
