package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/apollo-11/apollo/events"
)

// Limits on schemas.
const (
	MaxSchema  = 256 << 10 // bytes of a schema
	MaxPattern = 1 << 10   // bytes of a regular expression in it
)

// Contract is a compiled schema. It is immutable and safe for concurrent use. A nil *Contract promises nothing beyond
// the format: data is read strictly and counted.
type Contract struct {
	schema *jsonschema.Schema
	direct map[string]*property // per column, when the whole schema is simple; else nil: the library checks each row
}

// cache holds compiled schemas by digest. It is emptied when it is full: a compile costs a millisecond at most.
var cache = struct {
	sync.Mutex
	m map[events.Digest]*Contract
}{m: map[events.Digest]*Contract{}}

const maxCache = 1024

// Compile makes a contract of a JSON Schema (draft 2020-12 unless it says otherwise). Formats are checked. References
// reach only into the schema itself: none is fetched or read from a file. What can never be met is refused: a minimum
// above its maximum, an empty enum. Compiled contracts are kept by the digest of their schema.
func Compile(schema json.RawMessage) (*Contract, error) {
	digest := events.DigestOf(schema)
	cache.Lock()
	c := cache.m[digest]
	cache.Unlock()
	if c != nil {
		return c, nil
	}
	c, err := compile(schema)
	if err != nil {
		return nil, errors.New("E_CONTRACT: " + strings.ReplaceAll(err.Error(), home, ""))
	}
	cache.Lock()
	defer cache.Unlock()
	if len(cache.m) >= maxCache {
		clear(cache.m)
	}
	cache.m[digest] = c
	return c, nil
}

// home is the base address of every schema; the loader refuses all others.
const (
	root = "apollo:///"
	home = root + "contract.json"
)

func compile(schema []byte) (*Contract, error) {
	if len(schema) > MaxSchema {
		return nil, fmt.Errorf("the schema has %d bytes; at most %d are allowed", len(schema), MaxSchema)
	}
	doc, err := DecodeStrict(schema)
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	compiler.UseLoader(noLoader{})
	compiler.UseRegexpEngine(cappedRegexp)
	if err := compiler.AddResource(home, doc); err != nil {
		return nil, err
	}
	s, err := compiler.Compile(home)
	if err != nil {
		return nil, plain(err, doc)
	}
	if err := lint(s, map[*jsonschema.Schema]bool{}); err != nil {
		return nil, err
	}
	return &Contract{schema: s, direct: simple(s)}, nil
}

type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("the schema refers to %s: references outside the schema are not allowed", shorten(strings.TrimPrefix(url, root)))
}

func cappedRegexp(pattern string) (jsonschema.Regexp, error) {
	if len(pattern) > MaxPattern {
		return nil, fmt.Errorf("the pattern has %d bytes; at most %d are allowed", len(pattern), MaxPattern)
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	return re, nil
}

// plain gives the first cause of a schema that is no valid schema, without the library's addresses.
func plain(err error, doc any) error {
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if violations, ok := errors.AsType[*jsonschema.ValidationError](invalid.Err); ok {
			report := &Report{}
			flatten(report, violations, doc)
			return fmt.Errorf("the schema is not valid: %v", report.Violations[0])
		}
	}
	if loading, ok := errors.AsType[*jsonschema.LoadURLError](err); ok {
		return loading.Err
	}
	if pattern, ok := errors.AsType[*jsonschema.InvalidRegexError](err); ok {
		return fmt.Errorf("the pattern %s is not valid: %w", shorten(pattern.Regex), pattern.Err)
	}
	return err
}
