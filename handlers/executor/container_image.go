package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/apollo-11/apollo/events"
)

// image is one image on the engine: what an attempt runs, whatever becomes of its name meanwhile.
type image struct {
	ID          string // the digest of its configuration
	RepoDigests []string
}

// pullPatience bounds how long an image may take to arrive.
const pullPatience = 15 * time.Minute

// resolve finds the image of a reference, and fetches it when the policy says so.
func (e *containerEngine) resolve(ctx context.Context, reference, policy string) (image, *events.Failure) {
	if reference == "" || strings.ContainsAny(reference, "?#% \\") || strings.Contains(reference, "..") {
		return image{}, noImage(reference, "that is no name of an image")
	}
	if policy != "always" {
		found, err := e.inspect(ctx, reference)
		switch {
		case err == nil:
			return found, nil
		case !refused(err, http.StatusNotFound):
			return found, e.imageFailure(ctx, "look for the image", err)
		case policy == "never":
			return found, noImage(reference, "it is not on the engine, and pull: never forbids to fetch it")
		}
	}
	said, err := e.pull(ctx, reference)
	if cause := stopCause(ctx); cause != nil {
		return image{}, cause
	}
	if err != nil {
		return image{}, e.imageFailure(ctx, "fetch the image", err)
	}
	if said != "" {
		return image{}, noImage(reference, said)
	}
	found, err := e.inspect(ctx, reference)
	if refused(err, http.StatusNotFound) {
		return found, noImage(reference, "the engine fetched it, and does not have it")
	}
	if err != nil {
		return found, e.imageFailure(ctx, "look for the image", err)
	}
	return found, nil
}

func (e *containerEngine) imageFailure(ctx context.Context, doing string, err error) *events.Failure {
	if cause := stopCause(ctx); cause != nil {
		return cause
	}
	return e.fails(doing, err)
}

func noImage(reference, why string) *events.Failure {
	return &events.Failure{Class: events.ExecFailed, Pointer: "/image", Expected: "an image " + reference, Actual: why,
		Reason: fmt.Sprintf("E_IMAGE: the image %s cannot be had: %s", reference, why)}
}

func (e *containerEngine) inspect(ctx context.Context, reference string) (image, error) {
	ctx, cancel := context.WithTimeout(ctx, quick)
	defer cancel()
	var found image
	err := e.call(ctx, http.MethodGet, "/images/"+reference+"/json", nil, nil, &found)
	if err == nil && found.ID == "" {
		err = errors.New("the engine gave an image without an id")
	}
	return found, err
}

// pull fetches an image. said is the engine's own word on why it could not.
func (e *containerEngine) pull(ctx context.Context, reference string) (said string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, pullPatience, fmt.Errorf("the image did not arrive within %s", pullPatience))
	defer cancel()
	about, err := e.hello(ctx)
	if err != nil {
		return "", err
	}
	if name := reference[strings.LastIndexByte(reference, '/')+1:]; !strings.ContainsAny(name, ":@") {
		reference += ":latest" // without a tag every tag would come
	}
	answer, err := e.send(ctx, http.MethodPost, "/v"+about.version+"/images/create", url.Values{"fromImage": {reference}}, nil)
	if failed, ok := errors.AsType[*engineError](err); ok {
		return failed.Error(), nil // not there, not allowed, or no registry that answers
	}
	if err != nil {
		return overdue(ctx, err)
	}
	defer answer.Body.Close()
	for progress := json.NewDecoder(answer.Body); ; {
		var line struct {
			Error string `json:"error"`
		}
		switch err := progress.Decode(&line); {
		case errors.Is(err, io.EOF):
			return "", nil
		case err != nil:
			return overdue(ctx, err)
		case line.Error != "":
			return lastLine(line.Error, line.Error), nil
		}
	}
}

// overdue makes the engine's word of a wait that was cut short.
func overdue(ctx context.Context, err error) (string, error) {
	if ctx.Err() != nil {
		return context.Cause(ctx).Error(), nil //nolint:nilerr // it is told as the reason
	}
	return "", err
}

// pins name the image: by the digest under which its registry knows it, or by its own when it comes from none.
func (i *image) pins(reference string) []events.Pair {
	digest := i.ID
	wanted := repositoryOf(reference)
	for n, known := range i.RepoDigests {
		name, d, _ := strings.Cut(known, "@")
		if n == 0 || repositoryOf(name) == wanted {
			digest = d
		}
	}
	if _, pinned, ok := strings.Cut(reference, "@"); ok {
		digest = pinned
	}
	return []events.Pair{{Name: "image", Value: digest}, {Name: "image_id", Value: i.ID}}
}

// repositoryOf gives the name of a reference in full, without tag and digest.
func repositoryOf(reference string) string {
	name, _, _ := strings.Cut(reference, "@")
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name = name[:colon]
	}
	registry, _, found := strings.Cut(name, "/")
	switch {
	case !found:
		return "docker.io/library/" + name
	case !strings.ContainsAny(registry, ".:") && registry != "localhost":
		return "docker.io/" + name
	}
	return name
}
