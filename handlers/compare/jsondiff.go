package compare

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// absent stands for what one side lacks; null is a value.
type absent struct{}

// MarshalJSON gives null.
func (absent) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// String gives a dash.
func (absent) String() string { return "–" }

// change is one place in which two JSON values differ.
type change struct {
	path []string
	a, b any
}

// changes gives every place in which two decoded JSON values differ, in the order of the keys. Lists are matched from both
// ends; what is between is matched by position.
func changes(a, b any) []change {
	var all []change
	walk(nil, a, b, &all)
	return all
}

func walk(path []string, a, b any, all *[]change) {
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok {
			walkObject(path, x, y, all)
			return
		}
	case []any:
		if y, ok := b.([]any); ok {
			walkList(path, x, y, all)
			return
		}
	}
	if !reflect.DeepEqual(a, b) {
		*all = append(*all, change{slices.Clone(path), a, b})
	}
}

func walkObject(path []string, a, b map[string]any, all *[]change) {
	keys := slices.Collect(maps.Keys(a))
	for key := range b {
		if _, both := a[key]; !both {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		x, inA := a[key]
		y, inB := b[key]
		if !inA {
			x = absent{}
		}
		if !inB {
			y = absent{}
		}
		walk(append(path, key), x, y, all)
	}
}

func walkList(path []string, a, b []any, all *[]change) {
	head := 0
	for head < min(len(a), len(b)) && reflect.DeepEqual(a[head], b[head]) {
		head++
	}
	tail := 0
	for tail < min(len(a), len(b))-head && reflect.DeepEqual(a[len(a)-1-tail], b[len(b)-1-tail]) {
		tail++
	}
	for i := head; i < max(len(a), len(b))-tail; i++ {
		var x, y any = absent{}, absent{}
		if i < len(a)-tail {
			x = a[i]
		}
		if i < len(b)-tail {
			y = b[i]
		}
		walk(append(path, strconv.Itoa(i)), x, y, all)
	}
}

// pointer gives the place as a JSON pointer (RFC 6901).
func (c *change) pointer() string {
	var b strings.Builder
	for _, part := range c.path {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(part))
	}
	return b.String()
}

// field gives the change as people name it: with dots.
func (c *change) field(group, prefix string) Field {
	f := Field{Group: group, Field: strings.TrimSuffix(prefix+strings.Join(c.path, "."), "."), A: c.a, B: c.b}
	x, inA := c.a.(string)
	y, inB := c.b.(string)
	if inA && inB && (strings.Contains(x, "\n") || strings.Contains(y, "\n")) {
		f.Text = unified([]byte(x), []byte(y), 1)
	}
	return f
}
