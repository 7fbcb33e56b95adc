package plugin

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"time"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

// executeRequest asks an executor to carry out one attempt.
type executeRequest struct {
	Protocol    int                        `json:"protocol"`
	Type        string                     `json:"type"` // execute
	Run         string                     `json:"run"`
	Pipeline    string                     `json:"pipeline"`
	Stage       string                     `json:"stage"`
	Attempt     int                        `json:"attempt"`
	Key         string                     `json:"key"`
	With        json.RawMessage            `json:"with"`
	Inputs      map[string]input           `json:"inputs"`
	Params      map[string]json.RawMessage `json:"params"`
	Outputs     []events.Output            `json:"outputs"`
	Dir         string                     `json:"dir"`
	Out         string                     `json:"out"`
	LogicalTime time.Time                  `json:"logical_time"`
	Seed        uint64                     `json:"seed,string"` // text: most readers of JSON round what is over 2^53
	Item        *item                      `json:"item,omitempty"`
	Secrets     map[string]string          `json:"secrets,omitempty"`
}

type input struct {
	Path  string          `json:"path,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

type item struct {
	Number int             `json:"number"`
	Value  json.RawMessage `json:"value"`
}

// alertRequest asks a channel to send one alert.
type alertRequest struct {
	Protocol int    `json:"protocol"`
	Type     string `json:"type"` // alert
	Alert    Alert  `json:"alert"`
}

var cancelLine = []byte(`{"type":"cancel"}` + "\n")

func newExecuteRequest(c *executor.Call) *executeRequest {
	r := &executeRequest{Protocol: configs.PluginProtocol, Type: "execute", Run: c.Run.String(), Pipeline: c.Pipeline, Stage: c.Stage,
		Attempt: c.Attempt, Key: c.Key, With: c.With, Inputs: map[string]input{}, Params: c.Params, Outputs: c.Outputs, Dir: c.Dir,
		Out: filepath.Join(c.Dir, "out"), LogicalTime: c.LogicalTime.UTC(), Seed: c.Seed, Secrets: c.Secrets}
	for role, in := range c.Inputs {
		r.Inputs[role] = input(in)
	}
	if r.Params == nil {
		r.Params = map[string]json.RawMessage{}
	}
	if r.Outputs == nil {
		r.Outputs = []events.Output{}
	}
	if c.Item > 0 {
		r.Item = &item{c.Item, c.Value}
	}
	return r
}

// encode gives a request as its line.
func encode(request any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(request)
	return b.Bytes(), err
}
