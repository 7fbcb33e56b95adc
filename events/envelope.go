package events

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"mime"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Envelope is any CloudEvents 1.0 event, Apollo's own or somebody else's.
type Envelope struct {
	ID, Source, Type string // required
	Subject          string
	DataSchema       string
	DataContentType  string
	Time             time.Time         // zero when absent
	Extensions       map[string]string // in their canonical text form: "true", "5", "value"
	Data             []byte            // JSON text, the decoded base64, or the text of another media type
	Base64           bool              // the data came as data_base64
}

// ParseEnvelope reads one event in the JSON format, structured mode. Which documents it takes is what the CloudEvents
// Go SDK takes and finds valid; beyond that it refuses attributes that stand twice and data in two forms.
func ParseEnvelope(b []byte) (Envelope, error) {
	members, err := objectMembers(b)
	if err != nil {
		return Envelope{}, fmt.Errorf("parse CloudEvents envelope: %w", err)
	}
	env, err := readEnvelope(members)
	if err != nil {
		return Envelope{}, fmt.Errorf("parse CloudEvents envelope: %w", err)
	}
	return env, nil
}

// ParseEnvelopes reads a batch in the JSON batch format. One event that is not valid makes the batch invalid.
func ParseEnvelopes(b []byte) ([]Envelope, error) {
	var elements []json.RawMessage
	if err := json.Unmarshal(b, &elements); err != nil {
		return nil, fmt.Errorf("parse CloudEvents batch: %w", err)
	}
	batch := make([]Envelope, len(elements))
	for i, element := range elements {
		var err error
		if batch[i], err = ParseEnvelope(element); err != nil {
			return nil, fmt.Errorf("parse CloudEvents batch: event %d: %w", i, err)
		}
	}
	return batch, nil
}

func readEnvelope(members map[string]json.RawMessage) (env Envelope, err error) {
	var version, instant string
	known := map[string]*string{"specversion": &version, "id": &env.ID, "source": &env.Source, "type": &env.Type,
		"subject": &env.Subject, "time": &instant, "dataschema": &env.DataSchema, "datacontenttype": &env.DataContentType}
	for name, raw := range members {
		to := known[name]
		switch {
		case name == "data" || name == "data_base64":
		case string(raw) == "null": // an attribute that is null is not there
		case to != nil:
			if *to, err = unquote(raw); err != nil {
				return env, fmt.Errorf("%s: not a string", name)
			}
		default:
			if err := env.setExtension(name, raw); err != nil {
				return env, err
			}
		}
	}
	if version != "1.0" {
		return env, fmt.Errorf("specversion %q: only 1.0 is understood", version)
	}
	if instant != "" {
		if env.Time, err = time.Parse(time.RFC3339Nano, instant); err != nil {
			return env, fmt.Errorf("time: %w", err)
		}
	}
	if err := env.check(); err != nil {
		return env, err
	}
	return env, env.setData(members["data"], members["data_base64"])
}

// check holds what the specification says about the attributes' values.
func (env *Envelope) check() error {
	for _, a := range [...]struct{ name, value string }{{"id", env.ID}, {"source", env.Source}, {"type", env.Type}} {
		if strings.TrimSpace(a.value) == "" {
			return fmt.Errorf("%s: required and not empty", a.name)
		}
	}
	if _, err := url.Parse(env.Source); err != nil {
		return errors.New("source: not a URI reference")
	}
	if env.Subject != "" && strings.TrimSpace(env.Subject) == "" {
		return errors.New("subject: not empty when present")
	}
	if env.DataSchema != "" {
		if u, err := url.Parse(env.DataSchema); err != nil || !u.IsAbs() {
			return errors.New("dataschema: not an absolute URI")
		}
	}
	if env.DataContentType != "" {
		if _, _, err := mime.ParseMediaType(env.DataContentType); err != nil {
			return fmt.Errorf("datacontenttype: %w", err)
		}
	}
	return nil
}

// setExtension takes a string, a boolean or a number in the range of 32 bits. Names are letters and digits; capitals
// are made small, as senders get them wrong.
func (env *Envelope) setExtension(name string, raw json.RawMessage) error {
	lower := strings.ToLower(name)
	for _, c := range lower {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return fmt.Errorf("extension %q: a name is letters and digits", name)
		}
	}
	switch lower {
	case "", "id", "source", "type", "subject", "time", "specversion", "dataschema", "datacontenttype":
		return fmt.Errorf("extension %q: the name is an attribute's", name)
	}
	if _, twice := env.Extensions[lower]; twice {
		return fmt.Errorf("extension %q stands twice", name)
	}
	text, err := extensionText(raw)
	if err != nil {
		return fmt.Errorf("extension %q: %w", name, err)
	}
	if env.Extensions == nil {
		env.Extensions = map[string]string{}
	}
	env.Extensions[lower] = text
	return nil
}

func extensionText(raw json.RawMessage) (string, error) {
	if raw[0] == '"' {
		return unquote(raw)
	}
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return "", err
	}
	switch v := value.(type) {
	case bool:
		return strconv.FormatBool(v), nil
	case float64:
		if v <= math.MaxInt32 && v >= math.MinInt32 {
			return strconv.Itoa(int(v)), nil
		}
		return "", errors.New("out of the range of 32 bits")
	}
	return "", errors.New("not a string, boolean or integer")
}

func (env *Envelope) setData(plain, coded json.RawMessage) error {
	switch {
	case plain != nil && coded != nil:
		return errors.New("data and data_base64: only one may be there")
	case coded != nil:
		text, err := unquote(coded)
		if err != nil {
			return errors.New("data_base64: not a string")
		}
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return fmt.Errorf("data_base64: %w", err)
		}
		env.Data, env.Base64 = data, true
	case plain != nil && env.isJSON():
		env.Data = plain
	case plain != nil:
		text, err := unquote(plain)
		if err != nil {
			return fmt.Errorf("data: a string is due for %s", env.DataContentType)
		}
		env.Data = []byte(text)
	}
	return nil
}

// isJSON reports whether the data's media type is JSON: absent, application/json, text/json, or any with +json.
func (env *Envelope) isJSON() bool {
	if env.DataContentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(env.DataContentType)
	return err == nil && (media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json"))
}
