package estimate

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/apollo-11/apollo/configs"
)

// proposal writes what is proposed as YAML, with a comment where there is little to go by. A stage without samples is
// left out.
func proposal(stages []Stage) string {
	var b strings.Builder
	for i := range stages {
		s := &stages[i]
		if s.Samples == 0 {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("stages:\n")
		}
		fmt.Fprintf(&b, "  %s:", s.Stage)
		if !s.Sure {
			fmt.Fprintf(&b, " # too few: n=%d", s.Samples)
		}
		fmt.Fprintf(&b, "\n    timeout: %s\n", configs.DurationText(Span(s.Timeout)))
		if s.process {
			fmt.Fprintf(&b, "    resources: {%s}\n", s.Resources.yaml())
		}
	}
	return b.String()
}

func (a Ask) yaml() string {
	parts := []string{"cpu: " + strconv.FormatFloat(a.CPU, 'f', -1, 64)}
	if a.Memory > 0 {
		parts = append(parts, "memory: "+configs.SizeText(a.Memory))
	}
	if a.Disk > 0 {
		parts = append(parts, "disk: "+configs.SizeText(a.Disk))
	}
	return strings.Join(parts, ", ")
}
