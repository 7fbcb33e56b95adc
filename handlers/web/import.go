package web

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/apollo-11/apollo/storage/bundle"
)

// Importer takes runs in from a file that they were exported to.
type Importer interface {
	// ImportBundle takes a file's bytes, checks all of them, and takes the runs in or none. Nothing is started.
	ImportBundle(ctx context.Context, name, actor string, file io.Reader) (*bundle.Imported, error)
}

const importPath = "/api/v1/bundles"

// registerImport serves the import beside huma, which would hold the whole file in memory.
func (o Options) registerImport(mux *http.ServeMux, api huma.API) {
	if o.Import == nil {
		return
	}
	api.OpenAPI().AddOperation(&huma.Operation{OperationID: "import-bundle", Method: http.MethodPost, Path: importPath, Summary: "Import runs from a file",
		Description: "The body is the file, as `apollo export` writes it. 422 when the file is damaged, 409 when the store has other events under the same id or " +
			"a run had not ended; nothing is changed then.",
		Parameters:  []*huma.Param{{Name: "name", In: "query", Description: "of the file, for the log", Schema: &huma.Schema{Type: huma.TypeString}}},
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/zip": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}},
		Responses: map[string]*huma.Response{"200": {Description: "What became of each run.",
			Content: map[string]*huma.MediaType{"application/json": {Schema: &huma.Schema{Type: huma.TypeObject}}}}}})
	mux.HandleFunc("POST "+importPath, o.importBundle)
}

func (o Options) importBundle(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})  // a large file takes as long as it takes
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // and so does looking at it
	done, err := o.Import.ImportBundle(r.Context(), baseName(r.URL.Query().Get("name")), Peer(r.Context()), r.Body)
	if err != nil {
		refuse(w, problem(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(done) //nolint:errchkjson // who asked is gone
}

// refuse answers as huma does (RFC 9457).
func refuse(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	if e, known := errors.AsType[huma.StatusError](err); known {
		status = e.GetStatus()
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(err) //nolint:errchkjson // as above
}

// baseName keeps the last part of a file's name, at most 200 bytes.
func baseName(name string) string {
	name = strings.ToValidUTF8(path.Base(path.Clean("/"+name)), "?")
	return name[:min(len(name), 200)]
}
