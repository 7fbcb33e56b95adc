package events

import "fmt"

// Graph is a plan made ready for folding: stages by index, who waits for whom. It is read-only and shared by all runs
// of the plan.
type Graph struct {
	Plan   *Plan
	Digest Digest
	index  map[string]int32
	below  [][]int32 // stages that need this one
	behind [][]int32 // stages that prefer this one; nil when none prefers any
}

// NewGraph checks that names are unique, every need exists and comes earlier in the list (so that there is no cycle).
func NewGraph(p *Plan, digest Digest) (*Graph, error) {
	g := &Graph{Plan: p, Digest: digest, index: make(map[string]int32, len(p.Stages)), below: make([][]int32, len(p.Stages))}
	if len(p.Stages) == 0 {
		return nil, fmt.Errorf("plan %s: no stages", p.Pipeline)
	}
	for i := range p.Stages {
		s := &p.Stages[i]
		if _, ok := g.index[s.Name]; ok {
			return nil, fmt.Errorf("plan %s: stage %q stands twice", p.Pipeline, s.Name)
		}
		for _, need := range s.Needs {
			above, ok := g.index[need]
			if !ok {
				return nil, fmt.Errorf("plan %s: stage %q needs %q, which does not come before it", p.Pipeline, s.Name, need)
			}
			g.below[above] = append(g.below[above], int32(i))
		}
		if err := g.linkPrefers(i); err != nil {
			return nil, err
		}
		g.index[s.Name] = int32(i)
	}
	return g, nil
}

func (g *Graph) linkPrefers(i int) error {
	s := &g.Plan.Stages[i]
	for _, wish := range s.Prefers {
		first, ok := g.index[wish]
		if !ok {
			return fmt.Errorf("plan %s: stage %q prefers %q, which does not come before it", g.Plan.Pipeline, s.Name, wish)
		}
		if g.behind == nil {
			g.behind = make([][]int32, len(g.Plan.Stages))
		}
		g.behind[first] = append(g.behind[first], int32(i)) //nolint:gosec // small
	}
	return nil
}

// Index gives a stage's place in Plan.Stages.
func (g *Graph) Index(stage string) (int, bool) {
	i, ok := g.index[stage]
	return int(i), ok
}

// Below gives the indexes of the stages that need the stage.
func (g *Graph) Below(i int) []int32 { return g.below[i] }

// Behind gives the indexes of the stages that prefer the stage to go first.
func (g *Graph) Behind(i int) []int32 {
	if g.behind == nil {
		return nil
	}
	return g.behind[i]
}
