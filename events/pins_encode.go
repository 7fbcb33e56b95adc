package events

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// Encode gives the canonical bytes: what EncodeDocument gives too. Every attempt is pinned, so that the usual document is
// written without reflection.
func (p *Pins) Encode() ([]byte, error) {
	if len(p.Item)+p.Number+len(p.With)+len(p.Inputs)+len(p.Env)+len(p.Secrets) > 0 || !plainJSON(p.Stage) || !plainJSON(p.Time) {
		return EncodeDocument(p)
	}
	b := append(make([]byte, 0, 256), `{"schema":`...)
	b = strconv.AppendInt(b, int64(p.Schema), 10)
	b = append(append(append(b, `,"stage":"`...), p.Stage...), `","definition":`...)
	if p.Definition.IsZero() {
		return EncodeDocument(p)
	}
	b = append(hex.AppendEncode(append(b, `"sha256:`...), p.Definition[:]), '"')
	var err error
	if b, err = appendParams(b, p.Params); err != nil {
		return nil, err
	}
	b = append(append(append(b, `,"time":"`...), p.Time...), `","seed":"`...)
	return append(strconv.AppendUint(b, p.Seed, 10), `"}`...), nil
}

// appendParams writes the member, if there are any, with sorted names.
func appendParams(b []byte, params map[string]json.RawMessage) ([]byte, error) {
	if len(params) == 0 {
		return b, nil
	}
	names := make([]string, 0, len(params))
	plain := true
	for name, value := range params {
		names = append(names, name)
		plain = plain && plainJSON(name) && plainNumber(value)
	}
	if !plain {
		text, err := json.Marshal(params)
		if err != nil {
			return nil, fmt.Errorf("encode the parameters: %w", err)
		}
		return append(append(b, `,"params":`...), text...), nil
	}
	slices.Sort(names)
	b = append(b, `,"params":{`...)
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(append(b, '"'), name...), `":`...), params[name]...)
	}
	return append(b, '}'), nil
}

// plainJSON reports whether a text stands in JSON as it is.
func plainJSON(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

// plainNumber reports whether a value is a whole number that is written as short as can be.
func plainNumber(value json.RawMessage) bool {
	if len(value) == 0 || len(value) > 18 || value[0] == '0' && len(value) > 1 {
		return false
	}
	for _, c := range value {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}
