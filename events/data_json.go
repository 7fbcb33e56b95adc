package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// dataJSON is Data as JSON. Encoded holds, in the encoded form, the fields that JSON cannot say exactly: those of a
// newer build, texts that are not UTF-8, raw JSON with white space or mistakes. They prevail over the readable members,
// which show such a text with U+FFFD and leave such raw JSON out.
type dataJSON struct {
	Data
	Encoded []byte `json:"encoded,omitempty"`
}

func renderData(d *Data) ([]byte, error) {
	encoded := d.inexact()
	if encoded == nil {
		return marshalLine(d)
	}
	image, err := d.image()
	if err != nil {
		return nil, err
	}
	return marshalLine(dataJSON{Data: image, Encoded: encoded})
}

func marshalLine(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("render data: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// inexact gives the encoded fields that JSON cannot say exactly, or nil.
func (d *Data) inexact() (encoded []byte) {
	for i := range dataFields {
		if f := &dataFields[i]; f.exact != nil && !f.exact(d) {
			encoded = f.put(encoded, d)
		}
	}
	return append(encoded, d.Unknown...)
}

// image gives what JSON can show of the data: texts with U+FFFD where they are not UTF-8, without broken raw JSON.
func (d *Data) image() (image Data, err error) {
	shown := *d
	for _, raw := range []*json.RawMessage{&shown.Params, &shown.Items, &shown.Answer, &shown.Pinned} {
		if !exactJSON(*raw) {
			*raw = nil
		}
	}
	shown.Checks = append([]Check(nil), d.Checks...)
	for i := range shown.Checks {
		if !exactJSON(shown.Checks[i].Inputs) {
			shown.Checks[i].Inputs = nil
		}
	}
	shown.Outputs = append([]Result(nil), d.Outputs...)
	for i := range shown.Outputs {
		if !exactJSON(shown.Outputs[i].Value) {
			shown.Outputs[i].Value = nil
		}
	}
	b, err := marshalLine(shown)
	if err != nil {
		return Data{}, err
	}
	if err := json.Unmarshal(b, &image); err != nil {
		return Data{}, fmt.Errorf("render data: %w", err)
	}
	return image, nil
}

func exactText(s string) bool { return utf8.ValidString(s) }

// exactJSON reports whether raw JSON survives inside a JSON document byte for byte.
func exactJSON(raw []byte) bool {
	if len(raw) == 0 {
		return true
	}
	if !utf8.Valid(raw) {
		return false
	}
	var compact bytes.Buffer
	return json.Compact(&compact, raw) == nil && bytes.Equal(compact.Bytes(), raw)
}

func parseData(b []byte, d *Data) error {
	var shown dataJSON
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&shown); err != nil {
		return fmt.Errorf("parse data: %w", err)
	}
	// One spelling only: this refuses members that stand twice, in other case, or say zero or null.
	var compact bytes.Buffer
	if err := json.Compact(&compact, b); err != nil {
		return fmt.Errorf("parse data: %w", err)
	}
	again, err := marshalLine(shown)
	if err != nil {
		return err
	}
	if !bytes.Equal(again, compact.Bytes()) {
		return errors.New("parse data: not spelt as an event's data are")
	}
	if len(shown.Encoded) == 0 {
		*d = shown.Data
		return nil
	}
	return d.prevail(&shown)
}

// prevail puts the exact fields over the readable ones, which must be their image.
func (d *Data) prevail(shown *dataJSON) error {
	var exact Data
	if err := exact.Decode(shown.Encoded); err != nil {
		return err
	}
	image, err := exact.image()
	if err != nil {
		return err
	}
	var merged []byte
	for i := range dataFields {
		f := &dataFields[i]
		readable, precise := f.put(nil, &shown.Data), f.put(nil, &exact)
		switch {
		case precise == nil:
			merged = append(merged, readable...)
		case readable != nil && !bytes.Equal(readable, f.put(nil, &image)):
			return fmt.Errorf("parse data: field %d is not what its exact form says", f.number)
		default:
			merged = append(merged, precise...)
		}
	}
	return d.Decode(append(merged, exact.Unknown...))
}
