package configs

import (
	"strconv"
	"time"
)

// The functions below read nodes that check has passed or reported already; what can't be read is the default.

func textOr(n *node, key, fallback string) string {
	if s := n.str(key); s != "" {
		return s
	}
	return fallback
}

func durationOf(n *node, fallback time.Duration) time.Duration {
	if n == nil {
		return fallback
	}
	if d, _, err := parseDuration(n.text); err == nil {
		return d
	}
	return fallback
}

func intOf(n *node, fallback int64) int64 {
	if n == nil {
		return fallback
	}
	if i, err := strconv.ParseInt(n.text, 10, 64); err == nil {
		return i
	}
	return fallback
}

func floatOf(n *node, fallback float64) float64 {
	if n == nil {
		return fallback
	}
	if f, err := strconv.ParseFloat(n.text, 64); err == nil {
		return f
	}
	return fallback
}

func boolOf(n *node) bool { return n != nil && n.plain == "boolean" && n.text == "true" }

func sizeOf(n *node) int64 {
	if n == nil {
		return 0
	}
	size, _ := parseSize(n.text)
	return size
}

func rateOf(n *node) int64 {
	if n == nil {
		return 0
	}
	rate, _ := parseRate(n.text)
	return rate
}

// texts gives a list's scalars, or nil.
func texts(n *node) []string {
	var out []string
	if n != nil {
		for _, item := range n.items {
			if item.kind == scalarNode {
				out = append(out, item.text)
			}
		}
	}
	return out
}
