package configs

import (
	"fmt"
	"strings"
)

// crossCheck finds what only several definitions together can have wrong.
func crossCheck(pipelines []*Pipeline) Problems {
	x := &crossChecker{byName: map[string]*Pipeline{}}
	hooks := map[string]*Pipeline{}
	for _, p := range pipelines {
		if first := x.byName[p.Name]; first != nil {
			x.at(p, p.places.name, "E_DUP_PIPELINE", fmt.Sprintf("the name %s is used already, in %s line %d", p.Name, first.File, first.places.name.line), "one pipeline a name")
			continue
		}
		x.byName[p.Name] = p
		for _, path := range sortedKeys(p.places.hooks) {
			if first := hooks[path]; first != nil {
				x.at(p, p.places.hooks[path], "E_HOOK_DUP", fmt.Sprintf("the webhook path %s is used already, in %s line %d", path, first.File, first.places.hooks[path].line),
					"one webhook a path")
				continue
			}
			hooks[path] = p
		}
	}
	x.loops()
	return x.problems
}

type crossChecker struct {
	byName   map[string]*Pipeline
	problems Problems
}

func (x *crossChecker) at(p *Pipeline, n *node, code, message, expected string) {
	x.problems = append(x.problems, Problem{File: p.File, Line: n.line, Col: n.col, Code: code, Severity: SeverityError, Message: message,
		Expected: expected, Snippet: snippet(p.places.lines, n.line, n.col)})
}

// loops reports each circle of pipelines once, at the place that closes it. A pipeline starts another when that one
// waits for its end, or when one of its own stages runs it.
func (x *crossChecker) loops() {
	next := map[string][]string{}
	for _, name := range sortedKeys(x.byName) {
		for _, cause := range sortedKeys(x.byName[name].places.after) {
			next[cause] = append(next[cause], name)
		}
		next[name] = append(next[name], sortedKeys(x.byName[name].places.runs)...)
	}
	const open, done = 1, 2
	state := map[string]int{}
	var path []string
	var visit func(name string)
	visit = func(name string) {
		state[name] = open
		path = append(path, name)
		for _, to := range next[name] {
			switch {
			case x.byName[to] == nil || state[to] == done:
			case state[to] == open:
				x.reportLoop(name, to, path)
			default:
				visit(to)
			}
		}
		path = path[:len(path)-1]
		state[name] = done
	}
	for _, name := range sortedKeys(x.byName) {
		if state[name] == 0 {
			visit(name)
		}
	}
}

func (x *crossChecker) reportLoop(from, to string, path []string) {
	start := 0
	for i, name := range path {
		if name == to {
			start = i
		}
	}
	circle := strings.Join(append(append([]string{}, path[start:]...), to), " → ")
	p, place := x.byName[to], x.byName[to].places.after[from]
	if place == nil {
		p, place = x.byName[from], x.byName[from].places.runs[to]
	}
	x.at(p, place, "E_TRIGGER_LOOP", "pipelines start each other in a circle: "+circle, "pipelines without a circle")
}
