package cmd

import (
	"slices"
	"strings"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/verify"
)

// proof is what the verifications of a run, or of a stage, have come to, as its log says.
type proof struct {
	reproduced int                    // verifications that did
	machines   map[events.Digest]bool // on which
	verdict    string                 // of the last one
	factor     string
	isolation  string // weakest level of the last one
	last       int64  // Unix nanoseconds
	findings   int    // two results for one stage key
}

// wholeRun is the place of the run itself among proofs.
const wholeRun = -1

// prove takes in an event that came after the end of a run.
func (v *seen) prove(r *events.Run, e *events.Event) {
	d, place := &e.Data, wholeRun
	if e.Type != events.RunVerified {
		var ok bool
		if place, ok = r.Find(d.Stage, d.Item); !ok {
			return
		}
	}
	p := v.proofs[place]
	if p == nil {
		p = &proof{machines: map[events.Digest]bool{}}
		if v.proofs == nil {
			v.proofs = map[int]*proof{}
		}
		v.proofs[place] = p
	}
	if e.Type == events.StageIrreproducibleFound {
		p.findings++
		return
	}
	p.verdict, p.factor, p.isolation, p.last = d.Verdict, d.Factor, d.Isolation, e.Time
	if d.Verdict == verify.Reproduced {
		p.reproduced++
		p.machines[d.Machine] = true
	}
	if e.Type == events.RunVerified {
		p.isolation = v.weakest()
	}
}

// weakest gives the lowest level of isolation under which a stage was reproduced the last time.
func (v *seen) weakest() string {
	levels := configs.Levels()
	least := len(levels)
	for place, p := range v.proofs {
		if place != wholeRun && p.verdict == verify.Reproduced {
			least = min(least, max(0, slices.Index(levels, p.isolation)))
		}
	}
	if least == len(levels) {
		return ""
	}
	return levels[least]
}

// badge says what verifications came to, empty when there was none: of a stage by its place, or of the whole run.
func (a *app) badge(v *view, place int) string {
	p := v.proofs[place]
	if p == nil {
		return ""
	}
	var parts []string
	if p.verdict != "" {
		said := a.verdict(p.verdict)
		if p.factor != "" {
			said += " " + a.paint(bold, line(p.factor))
		}
		parts = append(parts, said)
	}
	if p.reproduced > 0 {
		said := a.say.T("badge.reproduced", lang.Data{"N": p.reproduced}) + a.say.T("badge.machines", lang.Data{"N": len(p.machines)})
		if p.isolation != "" {
			said += ", " + p.isolation
		}
		parts = append(parts, a.paint(dim, said+", "+a.say.T("badge.last", lang.Data{"Ago": a.ago(p.last)})))
	}
	if p.findings > 0 && place != wholeRun {
		parts = append(parts, a.paint(bad, a.say.T("badge.findings", lang.Data{"N": p.findings})))
	}
	return strings.Join(parts, "  ")
}

// proofLines are what stands below the first line about a run: its badge, and that a stage key has two results.
func (a *app) proofLines(v *view) (lines []string) {
	if said := a.badge(v, wholeRun); said != "" {
		lines = append(lines, said)
	}
	return lines
}

type proofJSON struct {
	Verdict    string `json:"verdict"`
	Factor     string `json:"factor,omitempty"`
	Reproduced int    `json:"reproduced"`
	Machines   int    `json:"machines"`
	Isolation  string `json:"isolation,omitempty"`
	Last       string `json:"last"`
}

func (v *view) proofJSON(place int) *proofJSON {
	p := v.proofs[place]
	if p == nil || p.last == 0 {
		return nil
	}
	return &proofJSON{Verdict: p.verdict, Factor: p.factor, Reproduced: p.reproduced, Machines: len(p.machines), Isolation: p.isolation, Last: stamp(p.last)}
}

func (v *view) findingsAt(place int) int {
	if p := v.proofs[place]; p != nil {
		return p.findings
	}
	return 0
}
