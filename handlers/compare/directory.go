package compare

import (
	"encoding/json"
	"path"
	"reflect"

	"github.com/apollo-11/apollo/events"
)

// entry is one line of a directory's manifest, as far as a comparison goes into it.
type entry struct {
	Path   string        `json:"path"`
	Digest events.Digest `json:"digest"`
	Size   int64         `json:"size"`
	whole  any
}

// directory compares two directories by their manifests: JSON lists of entries with a path and, for files, a digest; or
// objects that hold such a list.
func (c *comparison) directory(b *blobs) *Content {
	found := &Content{Format: "directory"}
	x, y := entries(c.a.document(b.a)), entries(c.b.document(b.b))
	if x == nil || y == nil {
		found.Note = "its manifest is not there"
		return found
	}
	left, right := map[string]any{}, map[string]any{}
	for name := range x {
		left[name] = name
	}
	for name := range y {
		right[name] = name
	}
	for name, one := range x {
		if other, both := y[name]; both && reflect.DeepEqual(one.whole, other.whole) {
			delete(left, name)
			delete(right, name)
		} else if both {
			left[name], right[name] = one, other
		}
	}
	all := changes(left, right)
	for i := range all {
		if i == c.o.Limit {
			found.More = len(all) - i
			break
		}
		found.Files = append(found.Files, c.fileOf(all[i].path[0], x, y, i == 0))
	}
	return found
}

// fileOf gives a file of a directory that differs; the content of the first is compared.
func (c *comparison) fileOf(name string, x, y map[string]entry, first bool) File {
	a, inA := x[name]
	b, inB := y[name]
	f := File{Path: name, Change: "changed", A: a.Digest.String(), B: b.Digest.String()}
	switch {
	case !inA:
		f.Change = "added"
	case !inB:
		f.Change = "removed"
	case first && a.Digest != b.Digest:
		f.Content = c.file(&blobs{name: path.Base(name), a: a.Digest, b: b.Digest, sizes: [2]int64{a.Size, b.Size}})
	}
	return f
}

// entries gives the lines of a manifest by their paths; nil when it is none.
func entries(manifest any) map[string]entry {
	list, ok := manifest.([]any)
	if object, isObject := manifest.(map[string]any); isObject {
		for _, value := range object {
			if l, isList := value.([]any); isList {
				list, ok = l, true
			}
		}
		ok = ok || len(object) > 0
	}
	if !ok {
		return nil
	}
	all := map[string]entry{}
	for _, one := range list {
		b, err := json.Marshal(one)
		if err != nil {
			return nil
		}
		e := entry{whole: one}
		if json.Unmarshal(b, &e) != nil || e.Path == "" {
			return nil
		}
		all[e.Path] = e
	}
	return all
}
