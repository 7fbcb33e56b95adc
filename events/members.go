package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// objectMembers reads one JSON object into its members as raw JSON; a name that stands twice is an error.
func objectMembers(b []byte) (map[string]json.RawMessage, error) {
	if !json.Valid(b) {
		return nil, errors.New("not a JSON document")
	}
	rest := skipSpace(b)
	if rest[0] != '{' {
		return nil, errors.New("not a JSON object")
	}
	members := make(map[string]json.RawMessage, 16)
	// The document is valid, so that looking for the ends of values is all there is to do.
	for rest = skipSpace(rest[1:]); rest[0] != '}'; {
		end := valueEnd(rest)
		name, err := unquote(rest[:end])
		if err != nil {
			return nil, err
		}
		if _, twice := members[name]; twice {
			return nil, fmt.Errorf("%q stands twice", name)
		}
		rest = skipSpace(skipSpace(rest[end:])[1:]) // the colon
		end = valueEnd(rest)
		members[name] = json.RawMessage(rest[:end])
		if rest = skipSpace(rest[end:]); rest[0] == ',' {
			rest = skipSpace(rest[1:])
		}
	}
	return members, nil
}

func skipSpace(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }

// valueEnd gives the length of the JSON value that valid JSON begins with.
func valueEnd(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i += stringEnd(b[i:]) - 1
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		default:
			if i+1 < len(b) && strings.IndexByte(",:]} \t\r\n", b[i+1]) < 0 || depth > 0 {
				continue // inside a number or a word, or between the members of a value
			}
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(b)
}

func stringEnd(b []byte) int {
	for i := 1; ; i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

// unquote reads a JSON string; null is the empty one.
func unquote(raw []byte) (s string, err error) {
	if n := len(raw) - 1; n > 0 && raw[0] == '"' && plain(raw[1:n]) {
		return string(raw[1:n]), nil
	}
	err = json.Unmarshal(raw, &s)
	return s, err
}

// plain reports whether a JSON string's inside stands for itself.
func plain(b []byte) bool {
	for _, c := range b {
		if c == '\\' || c >= 0x80 {
			return false
		}
	}
	return true
}
