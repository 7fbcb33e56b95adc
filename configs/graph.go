package configs

import (
	"math/bits"
	"slices"
	"strings"
)

type bitset []uint64

func (s bitset) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }
func (s bitset) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s bitset) addAll(t bitset) {
	for i := range s {
		s[i] |= t[i]
	}
}

// takeFirst takes the smallest member out and gives it, or -1.
func (s bitset) takeFirst() int {
	for i, word := range s {
		if word != 0 {
			s[i] = word & (word - 1)
			return i*64 + bits.TrailingZeros64(word)
		}
	}
	return -1
}

// linkStages resolves needs and prefers, and reports cycles.
func (b *builder) linkStages() {
	names := make([]string, len(b.stages))
	for i, s := range b.stages {
		names[i] = s.name
	}
	for _, s := range b.stages {
		s.needs = b.resolve(s, "needs", names)
		s.prefers = b.resolve(s, "prefers", names)
		for _, weak := range s.prefers {
			if slices.Contains(s.needs, weak) {
				b.at(s.body.get("prefers"), "E_VALUE", s.name+" both needs and prefers "+weak.name, "one of the two", "")
			}
		}
	}
	b.findCycle()
}

func (b *builder) resolve(s *stageInfo, key string, names []string) []*stageInfo {
	list := s.body.get(key)
	if list == nil {
		return nil
	}
	var out []*stageInfo
	for _, item := range list.items {
		if item.kind != scalarNode || !namePattern.MatchString(item.text) {
			continue
		}
		target := b.byName[item.text]
		switch {
		case target == nil:
			b.at(item, "E_REF", s.name+" "+key+" the stage "+item.text+", which does not exist", "a stage of this pipeline", didYouMean(item.text, names))
		case target == s:
			b.cyclic = true
			b.at(item, "E_CYCLE", "the stage "+s.name+" "+key+" itself: "+s.name+" → "+s.name, "stages without a circle", "")
		case slices.Contains(out, target):
			b.at(item, "E_VALUE", s.name+" "+key+" "+item.text+" twice", "each stage once", "")
		default:
			out = append(out, target)
		}
	}
	return out
}

func (s *stageInfo) before() []*stageInfo { return slices.Concat(s.needs, s.prefers) }

// findCycle reports one circle for each group of stages that wait for each other; prefers counts, since a wish that
// can't be met is a mistake too.
func (b *builder) findCycle() {
	const fresh, open, done = 0, 1, 2
	state := make([]int, len(b.stages))
	type frame struct {
		stage *stageInfo
		next  int
	}
	for _, start := range b.stages {
		if state[start.index] != fresh {
			continue
		}
		state[start.index] = open
		stack := []frame{{stage: start}}
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			before := top.stage.before()
			if top.next == len(before) {
				state[top.stage.index] = done
				stack = stack[:len(stack)-1]
				continue
			}
			next := before[top.next]
			top.next++
			switch state[next.index] {
			case fresh:
				state[next.index] = open
				stack = append(stack, frame{stage: next})
			case open:
				path := []string{next.name}
				for i := slices.IndexFunc(stack, func(f frame) bool { return f.stage == next }) + 1; i < len(stack); i++ {
					path = append(path, stack[i].stage.name)
				}
				b.reportCycle(top.stage, next, append(path, next.name))
			}
		}
	}
}

func (b *builder) reportCycle(from, to *stageInfo, path []string) {
	b.cyclic = true
	place := from.key
	for _, key := range []string{"needs", "prefers"} {
		if list := from.body.get(key); list != nil {
			for _, item := range list.items {
				if item.text == to.name {
					place = item
				}
			}
		}
	}
	if len(path) > 12 {
		path = slices.Concat(path[:6], []string{"…"}, path[len(path)-5:])
	}
	b.at(place, "E_CYCLE", "stages wait for each other in a circle: "+strings.Join(path, " → "), "stages without a circle", "take one of these needs out")
}

// reaches reports whether a stage is needed by another, directly or through others.
func (b *builder) reaches(from, target *stageInfo) bool {
	if b.cyclic || slices.Contains(from.needs, target) {
		return true
	}
	if b.ancestors == nil {
		b.ancestors = make([]bitset, len(b.stages))
		for _, s := range b.topological() {
			set := make(bitset, (len(b.stages)+63)/64)
			for _, need := range s.needs {
				set.add(need.index)
				set.addAll(b.ancestors[need.index])
			}
			b.ancestors[s.index] = set
		}
	}
	return b.ancestors[from.index].has(target.index)
}

// topological orders the stages so that each comes after those before it, ties by declaration. It takes a graph
// without cycles.
func (b *builder) topological() []*stageInfo {
	waiting := make([]int, len(b.stages))
	after := make([][]*stageInfo, len(b.stages))
	ready := make(bitset, (len(b.stages)+63)/64)
	for _, s := range b.stages {
		before := s.before()
		waiting[s.index] = len(before)
		for _, earlier := range before {
			after[earlier.index] = append(after[earlier.index], s)
		}
		if len(before) == 0 {
			ready.add(s.index)
		}
	}
	order := make([]*stageInfo, 0, len(b.stages))
	for i := ready.takeFirst(); i >= 0; i = ready.takeFirst() {
		s := b.stages[i]
		order = append(order, s)
		for _, later := range after[s.index] {
			if waiting[later.index]--; waiting[later.index] == 0 {
				ready.add(later.index)
			}
		}
	}
	return order
}

func (b *builder) orderStages() {
	if b.cyclic {
		return
	}
	for _, s := range b.topological() {
		b.plan.Stages = append(b.plan.Stages, s.out)
	}
}
