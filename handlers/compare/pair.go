package compare

import (
	"cmp"
	"slices"
)

// couple is a stage, or an instance of one, by its places in both runs; -1 is not there.
type couple struct {
	name string
	a, b int
}

// pair matches the stages of two runs: by name in an order that respects both plans, instances before the stage that waits
// for them.
func pair(a, b *half) (all []couple) {
	for _, name := range merged(names(a), names(b)) {
		x, y := place(a, name), place(b, name)
		all = append(all, instances(a, b, name, x, y)...)
		all = append(all, couple{name, x, y})
	}
	return all
}

func names(h *half) []string {
	list := make([]string, len(h.Run.Graph.Plan.Stages))
	for i := range list {
		list[i] = h.Run.Graph.Plan.Stages[i].Name
	}
	return list
}

func place(h *half, name string) int {
	if i, ok := h.Run.Find(name, 0); ok {
		return i
	}
	return -1
}

// merged lists the names of both: those of a in their order, and those that only b has before the next one that both have.
func merged(a, b []string) []string {
	common := make(map[string]bool, len(a))
	for _, name := range a {
		common[name] = false
	}
	behind, last := map[string][]string{}, ""
	for _, name := range b {
		if _, both := common[name]; both {
			common[name], last = true, name
			continue
		}
		behind[last] = append(behind[last], name)
	}
	all, due := make([]string, 0, len(a)+len(b)), behind[""]
	for _, name := range a {
		if common[name] {
			all, due = append(all, due...), behind[name]
		}
		all = append(all, name)
	}
	return append(all, due...)
}

// instances matches those of a foreach stage by the values of their items, then what is left by the numbers.
func instances(a, b *half, name string, x, y int) (all []couple) {
	left, right := numbers(a, x), numbers(b, y)
	free := map[string][]int{}
	for _, k := range right {
		v := string(b.value(k))
		free[v] = append(free[v], k)
	}
	taken := map[int]bool{}
	for _, k := range left {
		c := couple{name, k, -1}
		if same := free[string(a.value(k))]; len(same) > 0 {
			c.b, free[string(a.value(k))] = same[0], same[1:]
			taken[c.b] = true
		}
		all = append(all, c)
	}
	for i := range all {
		if n := number(a, all[i].a); all[i].b < 0 && n <= len(right) && !taken[right[n-1]] {
			all[i].b = right[n-1]
			taken[all[i].b] = true
		}
	}
	for _, k := range right {
		if !taken[k] {
			all = append(all, couple{name, -1, k})
		}
	}
	slices.SortStableFunc(all, func(p, q couple) int { return cmp.Compare(p.number(a, b), q.number(a, b)) })
	return all
}

func numbers(h *half, i int) (list []int) {
	if i < 0 {
		return nil
	}
	s := &h.Run.Stages[i]
	for k := s.First; k < s.First+s.Count; k++ {
		list = append(list, int(k))
	}
	return list
}

func number(h *half, i int) int { return int(h.Run.Stages[i].Item) }

func (c couple) number(a, b *half) int {
	if c.a >= 0 {
		return number(a, c.a)
	}
	return number(b, c.b)
}
