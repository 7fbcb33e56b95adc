package trigger

import "encoding/json"

// Manual makes the delivery of a person who starts a run; params are resolved already.
func Manual(pipeline string, params json.RawMessage) *Delivery {
	return &Delivery{Kind: "manual", Trigger: "manual", Pipeline: pipeline, Params: params}
}
