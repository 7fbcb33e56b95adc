package configs

import (
	"fmt"

	"github.com/apollo-11/apollo/events"
)

func (b *builder) buildResources(s *stageInfo) {
	n := s.body.get("resources")
	if n == nil || n.kind != mapNode {
		return
	}
	r := &events.Resources{CPU: floatOf(n.get("cpu"), 0), Memory: sizeOf(n.get("memory")), Disk: sizeOf(n.get("disk")), Network: rateOf(n.get("network"))}
	s.out.Resources = r
	m, may := b.options.Machine, b.options.Budget
	b.checkRequest(s, n.get("cpu"), " cores", r.CPU, m.Cores, may.Cores, plainNumber, plainNumber)
	whole := func(f float64) string { return SizeText(int64(f)) }
	about := func(f float64) string { return SizeAbout(int64(f)) }
	rate := func(f float64) string { return RateText(int64(f)) }
	b.checkRequest(s, n.get("memory"), " of memory", float64(r.Memory), float64(m.Memory), float64(may.Memory), whole, about)
	b.checkRequest(s, n.get("disk"), " of disk", float64(r.Disk), float64(m.Disk), float64(may.Disk), whole, about)
	b.checkRequest(s, n.get("network"), " of network", float64(r.Network), float64(m.Network), float64(may.Network), rate, rate)
}

// checkRequest refuses a request that could never start, and says what was asked for and what there is.
func (b *builder) checkRequest(s *stageInfo, n *node, of string, asked, machine, budget float64, exact, about func(float64) string) {
	limit := machine
	if budget > 0 {
		limit = budget
	}
	if limit <= 0 || asked <= limit {
		return
	}
	there := "the machine has " + about(machine)
	if budget > 0 {
		there = "stages may use " + about(budget)
		if machine > 0 {
			there += " of this machine's " + about(machine)
		}
	}
	b.at(n, "E_RESOURCE", fmt.Sprintf("%s asks for %s%s, and %s", s.name, exact(asked), of, there), "at most "+about(limit), "")
}
