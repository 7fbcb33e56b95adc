package executor

import (
	"maps"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// filter is a program of seccomp. It is translated and tried for every call that there is each time it is installed, so it
// is as short as can be: parts that end alike are shared, and calls are found by halves.
type filter []unix.SockFilter

// assembly is a filter that is being written. Jumps name where they lead, which is always further down.
type assembly struct {
	lines []line
	marks map[string]int
	parts int
}

type line struct {
	in          unix.SockFilter
	then, other string
}

func (a *assembly) add(in unix.SockFilter, then, other string) {
	a.lines = append(a.lines, line{in, then, other})
}

func (a *assembly) load(at uint32) {
	a.add(unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}, "", "")
}

// jump leads to then when what was loaded compares to the value, and else to other.
func (a *assembly) jump(compare uint16, value uint32, then, other string) {
	a.add(unix.SockFilter{Code: unix.BPF_JMP | compare | unix.BPF_K, K: value}, then, other)
}

func (a *assembly) mark(name string) { a.marks[name] = len(a.lines) }

// verdict ends the program, where anything leads to this end.
func (a *assembly) verdict(name string, v uint32) {
	if slices.ContainsFunc(a.lines, func(l line) bool { return l.then == name || l.other == name }) {
		a.mark(name)
		a.add(unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: v}, "", "")
	}
}

// link gives the program.
func (a *assembly) link() filter {
	f := make(filter, len(a.lines))
	for i, l := range a.lines {
		f[i] = l.in
		if l.then != "" {
			f[i].Jt, f[i].Jf = uint8(a.marks[l.then]-i-1), uint8(a.marks[l.other]-i-1) //nolint:gosec // there are some dozens of lines
		}
	}
	return f
}

// callSpan is the calls from a number to that of the next span, and where they lead.
type callSpan struct {
	from uint32
	to   string
}

// spansOf covers all numbers; those that are not named are allowed.
func spansOf(calls map[uint32]string) []callSpan {
	spans := []callSpan{{0, "allow"}}
	lead := func(from uint32, to string) {
		last := &spans[len(spans)-1]
		if last.from == from {
			last.to = to
		} else if last.to != to {
			spans = append(spans, callSpan{from, to})
		}
	}
	for _, nr := range slices.Sorted(maps.Keys(calls)) {
		if last := spans[len(spans)-1]; last.from == nr && len(spans) > 1 && spans[len(spans)-2].to == calls[nr] {
			spans = spans[:len(spans)-1]
		} else {
			lead(nr, calls[nr])
		}
		lead(nr+1, "allow")
	}
	return spans
}

// search leads to the span of the number that was loaded. There are two at least.
func (a *assembly) search(spans []callSpan) {
	middle := len(spans) / 2
	low, high := a.place(spans[:middle]), a.place(spans[middle:])
	a.jump(unix.BPF_JGE, spans[middle].from, high, low)
	if middle > 1 {
		a.mark(low)
		a.search(spans[:middle])
	}
	if len(spans)-middle > 1 {
		a.mark(high)
		a.search(spans[middle:])
	}
}

// place gives the name of where a part of a search will be: one span is where it leads.
func (a *assembly) place(spans []callSpan) string {
	if len(spans) == 1 {
		return spans[0].to
	}
	a.parts++
	return "part " + strconv.Itoa(a.parts)
}
