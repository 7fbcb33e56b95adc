package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/web"
	"github.com/apollo-11/apollo/storage/bundle"
)

// taker takes files in as it is told.
type taker struct {
	name, actor, body string
	err               error
}

func (k *taker) ImportBundle(_ context.Context, name, actor string, file io.Reader) (*bundle.Imported, error) {
	b, err := io.ReadAll(file)
	k.name, k.actor, k.body = name, actor, string(b)
	return &bundle.Imported{Runs: []bundle.ImportedRun{{Run: runID, State: events.Completed, Verdict: "imported"}}}, errors.Join(err, k.err)
}

func TestImportOverTheAPI(t *testing.T) {
	t.Parallel()
	k := &taker{}
	h := web.API(web.Options{Control: &control{}, Log: &growing{}, Import: k, Status: func() web.Status { return web.Status{} }})
	for _, c := range []struct {
		query, name string
		err         error
		status      int
		answer      string
	}{
		{"?name=run.apollo", "run.apollo", nil, 200, `"verdict":"imported"`},
		{"?name=../../etc/passwd", "passwd", nil, 200, `"state":"completed"`},
		{"", "/", nil, 200, "{"},
		{"?name=" + strings.Repeat("x", 500), strings.Repeat("x", 200), nil, 200, "{"},
		{"?name=x", "x", &web.ErrStatus{Status: http.StatusConflict, Err: bundle.ErrConflict}, 409, "E_BUNDLE_CONFLICT"},
		{"?name=x", "x", errors.New("the disk is on fire"), 500, "the disk is on fire"},
	} {
		k.err = c.err
		status, answer := call(t, h, "POST", "/bundles"+c.query, "bytes")
		if status != c.status || !strings.Contains(answer, c.answer) || k.name != c.name || k.body != "bytes" {
			t.Errorf("%s: %d %s, taken as %q", c.query, status, answer, k.name)
		}
		if !json.Valid([]byte(answer)) {
			t.Errorf("no JSON: %s", answer)
		}
	}
	none := api(&control{}, &growing{}, nil)
	if status, _ := call(t, none, "POST", "/bundles", "bytes"); status != 404 {
		t.Errorf("an API that takes no files answers %d", status)
	}
}
