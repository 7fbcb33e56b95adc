package configs

import (
	"path"
	"slices"
	"strconv"

	"github.com/apollo-11/apollo/events"
)

// Levels gives the levels that isolation can reach, the weakest first.
func Levels() []string { return []string{"env", "landlock", "landlock+seccomp", "container"} }

func isolationSpec() *spec {
	modes := []string{"off", "observe", "enforce"}
	return choice("Whether undeclared access is ignored, recorded or refused.",
		oneOf("Whether undeclared access is ignored, recorded or refused.", modes...),
		object("The mode, and what it takes.",
			preset("mode", "observe", oneOf("Whether undeclared access is ignored, recorded or refused.", modes...)),
			key("require", oneOf("The level that has to be reached: where the system cannot, the attempt fails.", Levels()...)),
			key("readable", list("Files and directories, as a tool chain, that the stage may read besides its inputs. They are not pinned: no other run takes the result over.",
				as(textForm, "An absolute path.")))))
}

func compareSpec() *spec {
	return object("What counts when two results of the stage are compared.",
		key("ignore", list("Outputs that may differ.", as(nameForm, "A role of an output."))),
		key("normalise", as(scriptForm, "A shell command; what it makes of an output on its standard input is compared.")))
}

// buildIsolation reads what a stage may reach, and what it says of its result.
func (b *builder) buildIsolation(s *stageInfo, defaults workDefaults) {
	s.out.Isolation = textOr(s.body, "isolation", "observe")
	if n := s.body.get("isolation"); n != nil && n.kind == mapNode {
		s.out.Isolation, s.out.Require = textOr(n, "mode", "observe"), n.str("require")
		s.out.Readable = b.readable(n.get("readable"))
	}
	s.out.Network = textOr(s.body, "network", defaults.network)
	if s.out.Network == "" && s.out.Isolation == "enforce" {
		s.out.Network = "none"
	}
	if s.out.Clock = s.body.str("clock"); s.out.Clock == "run" {
		s.out.Clock = ""
	}
	if n := s.body.get("deterministic"); n != nil {
		same := boolOf(n)
		s.out.Same = &same
	}
	b.buildCompare(s)
}

func (b *builder) readable(n *node) (paths []string) {
	if n == nil {
		return nil
	}
	for _, item := range n.items {
		if item.kind != scalarNode {
			continue
		}
		if !path.IsAbs(item.text) || path.Clean(item.text) != item.text || item.text == "/" {
			b.at(item, "E_PATH", strconv.Quote(shortened(item.text))+" is no place that a stage can be let read", "an absolute path without . and .., and not the root", "")
		}
		paths = append(paths, item.text)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

func (b *builder) buildCompare(s *stageInfo) {
	n := s.body.get("compare")
	if n == nil || n.kind != mapNode {
		return
	}
	c := &events.Compare{Ignore: texts(n.get("ignore")), Normalise: n.str("normalise")}
	if list := n.get("ignore"); list != nil {
		for _, item := range list.items {
			if _, known := s.outputs[item.text]; !known && item.kind == scalarNode {
				b.at(item, "E_REF", "the stage "+s.name+" has no output "+shortened(item.text), "a role under outputs", didYouMean(item.text, sortedKeys(s.outputs)))
			}
		}
	}
	slices.Sort(c.Ignore)
	c.Ignore = slices.Compact(c.Ignore)
	if len(c.Ignore) > 0 || c.Normalise != "" {
		s.out.Compare = c
	}
}
