package executor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
)

// maxOutputs is the largest document of small outputs, in bytes. What is larger belongs into a file output.
const maxOutputs = 64 << 10

// maxOutputDepth is how deep the values may be nested.
const maxOutputDepth = 64

func outputsPath(c *Call) string { return filepath.Join(c.Dir, "state", "outputs.json") }

// readOutputs reads the values that a stage wrote to APOLLO_OUTPUTS; a missing or empty file is no values.
func readOutputs(path string) (map[string]json.RawMessage, *events.Failure) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, badOutputs("", "a file that can be read", err.Error())
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, badOutputs("", "a regular file", "something else")
	}
	content, err := io.ReadAll(io.LimitReader(f, maxOutputs+1))
	if err != nil {
		return nil, systemFailure("read APOLLO_OUTPUTS", err)
	}
	return parseOutputs(content)
}

// ParseOutputs reads an object of small outputs by role, as strictly as what a script writes to APOLLO_OUTPUTS.
func ParseOutputs(content []byte) (map[string]json.RawMessage, *events.Failure) {
	return parseOutputs(content)
}

// parseOutputs reads one JSON object strictly: no key twice, valid UTF-8, nothing behind it, bounded size and depth.
func parseOutputs(content []byte) (map[string]json.RawMessage, *events.Failure) {
	if len(content) > maxOutputs {
		return nil, badOutputs("", fmt.Sprintf("at most %d bytes", maxOutputs), "more")
	}
	if len(bytes.TrimSpace(content)) == 0 {
		return nil, nil
	}
	if !utf8.Valid(content) {
		return nil, badOutputs("", "UTF-8", "other bytes")
	}
	w := strictJSON{dec: json.NewDecoder(bytes.NewReader(content))}
	w.dec.UseNumber()
	if pointer, err := w.document(); err != nil {
		return nil, badOutputs(pointer, "strict JSON", err.Error())
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(content, &values); err != nil || values == nil {
		return nil, badOutputs("", "a JSON object of roles and values", "another JSON value")
	}
	return values, nil
}

func badOutputs(pointer, expected, actual string) *events.Failure {
	return &events.Failure{Class: events.BadOutput, Pointer: pointer, Expected: expected, Actual: actual,
		Reason: fmt.Sprintf("APOLLO_OUTPUTS must be %s, but is: %s", expected, actual)}
}

// strictJSON walks a document and stops at what encoding/json would let pass.
type strictJSON struct{ dec *json.Decoder }

func (w strictJSON) document() (pointer string, err error) {
	if pointer, err := w.value("", 0); err != nil {
		return pointer, err
	}
	if _, err := w.dec.Token(); err != io.EOF {
		return "", errors.New("something follows the first value")
	}
	return "", nil
}

func (w strictJSON) value(at string, depth int) (string, error) {
	if depth > maxOutputDepth {
		return at, fmt.Errorf("nested deeper than %d", maxOutputDepth)
	}
	token, err := w.dec.Token()
	if err != nil {
		return at, err
	}
	switch token {
	case json.Delim('{'):
		return w.object(at, depth)
	case json.Delim('['):
		return w.array(at, depth)
	}
	return "", nil
}

func (w strictJSON) object(at string, depth int) (string, error) {
	seen := make(map[string]bool)
	for w.dec.More() {
		token, err := w.dec.Token()
		if err != nil {
			return at, err
		}
		key := token.(string) //nolint:forcetypeassert // More said that a member comes, and its key is a string
		below := at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
		if seen[key] {
			return below, errors.New("the key appears twice")
		}
		seen[key] = true
		if pointer, err := w.value(below, depth+1); err != nil {
			return pointer, err
		}
	}
	_, err := w.dec.Token()
	return at, err
}

func (w strictJSON) array(at string, depth int) (string, error) {
	for i := 0; w.dec.More(); i++ {
		if pointer, err := w.value(at+"/"+strconv.Itoa(i), depth+1); err != nil {
			return pointer, err
		}
	}
	_, err := w.dec.Token()
	return at, err
}
