package events

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSettle(t *testing.T) {
	t.Parallel()
	const now = 1000
	twice := &Retry{Max: 2, Interval: 5}
	on := func(what ...string) *Retry { return &Retry{Max: 1, On: what} }
	for name, c := range map[string]struct {
		retry   *Retry
		f       Failure
		attempt int
		want    Type
		due     int64
	}{
		"no retry declared":               {nil, Failure{Class: Timeout}, 1, StageFailed, 0},
		"first of three":                  {twice, Failure{Class: Timeout}, 1, StageRetryScheduled, now + 5},
		"second of three":                 {twice, Failure{Class: Timeout}, 2, StageRetryScheduled, now + 5},
		"last of three":                   {twice, Failure{Class: Timeout}, 3, StageFailed, 0},
		"bad input stays bad":             {twice, Failure{Class: BadInput}, 1, StageFailed, 0},
		"bad input when asked":            {&Retry{Max: 1, On: []string{"bad_input"}}, Failure{Class: BadInput}, 1, StageRetryScheduled, now},
		"a class that is not listed":      {&Retry{Max: 1, On: []string{"timeout"}}, Failure{Class: BadOutput}, 1, StageFailed, 0},
		"an exit code that is listed":     {&Retry{Max: 1, On: []string{"exit:75"}}, Failure{Class: ExecFailed, Exit: 75}, 1, StageRetryScheduled, now},
		"another exit code":               {&Retry{Max: 1, On: []string{"exit:75"}}, Failure{Class: ExecFailed, Exit: 7}, 1, StageFailed, 0},
		"a signal is no exit code":        {&Retry{Max: 1, On: []string{"exit:0"}}, Failure{Class: ExecFailed, Signal: "SIGKILL"}, 1, StageFailed, 0},
		"a status that is listed":         {on("http:503"), Failure{Class: ExecFailed, Pointer: StatusPointer, Actual: "503 Service Unavailable"}, 1, StageRetryScheduled, now},
		"a status without a phrase":       {on("http:599"), Failure{Class: ExecFailed, Pointer: StatusPointer, Actual: "599"}, 1, StageRetryScheduled, now},
		"another status":                  {on("http:503"), Failure{Class: ExecFailed, Pointer: StatusPointer, Actual: "500 Internal Server Error"}, 1, StageFailed, 0},
		"a status of a class":             {on("http:5xx"), Failure{Class: ExecFailed, Pointer: StatusPointer, Actual: "502 Bad Gateway"}, 1, StageRetryScheduled, now},
		"a status of another class":       {on("http:5xx"), Failure{Class: ExecFailed, Pointer: StatusPointer, Actual: "404 Not Found"}, 1, StageFailed, 0},
		"503 of something else":           {on("http:503"), Failure{Class: ExecFailed, Pointer: "/rows", Actual: "503 rows"}, 1, StageFailed, 0},
		"a status of a broken answer":     {on("http:503"), Failure{Class: BadOutput, Pointer: StatusPointer, Actual: "503"}, 1, StageFailed, 0},
		"a status is no exit code":        {on("exit:0", "exit:503"), Failure{Class: ExecFailed, Pointer: StatusPointer, Actual: "503"}, 1, StageFailed, 0},
		"no connection":                   {on("http:connect"), Failure{Class: ExecFailed, Pointer: ConnectPointer}, 1, StageRetryScheduled, now},
		"no connection in time":           {on("http:connect"), Failure{Class: Timeout, Pointer: ConnectPointer}, 1, StageRetryScheduled, now},
		"no connection, not listed":       {on("http:5xx", "exit:0"), Failure{Class: ExecFailed, Pointer: ConnectPointer}, 1, StageFailed, 0},
		"a broken answer":                 {on("http:connect"), Failure{Class: BadOutput, Pointer: ConnectPointer}, 1, StageFailed, 0},
		"another time-out":                {on("http:connect"), Failure{Class: Timeout}, 1, StageFailed, 0},
		"an answer, not a connection":     {on("http:connect"), Failure{Class: ExecFailed, Pointer: StatusPointer, Actual: "503"}, 1, StageFailed, 0},
		"cancelled is never tried again":  {twice, Failure{Class: Aborted}, 1, StageCancelled, 0},
		"lost without retry":              {nil, Failure{Class: Lost}, LostRestarts, StageRetryScheduled, now},
		"lost too often":                  {nil, Failure{Class: Lost}, LostRestarts + 1, StageFailed, 0},
		"lost counts as an attempt":       {twice, Failure{Class: Lost}, 3, StageFailed, 0},
		"lost, whatever retry is on":      {&Retry{Max: 1, On: []string{"timeout"}}, Failure{Class: Lost}, 1, StageRetryScheduled, now},
		"lost, with retries switched off": {&Retry{Max: 0}, Failure{Class: Lost}, 1, StageRetryScheduled, now},
	} {
		got, due := Settle(ID{1}, &Stage{Name: "a", Retry: c.retry}, c.attempt, &c.f, now)
		if got != c.want || due != c.due {
			t.Errorf("%s: %s due %d, want %s due %d", name, got.Short(), due, c.want.Short(), c.due)
		}
	}
}

// TestNeverMoreThanOnePlusMax: whatever ends the attempts, in whatever order, their number is bounded.
func TestNeverMoreThanOnePlusMax(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &Stage{Name: "a", Retry: rapid.SampledFrom([]*Retry{nil, {Max: 0}, {Max: 1}, {Max: 2, On: []string{"timeout"}}, {Max: 7}}).Draw(t, "retry")}
		most := 1 + LostRestarts
		if s.Retry != nil && s.Retry.Max > 0 {
			most = 1 + s.Retry.Max
		}
		for attempt := 1; ; attempt++ {
			if attempt > most {
				t.Fatalf("attempt %d of %d", attempt, most)
			}
			if next, _ := Settle(ID{1}, s, attempt, genFailure().Draw(t, "failure"), 0); next == StageFailed {
				return
			}
		}
	})
}

func TestRetryWait(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for name, c := range map[string]struct {
		r       Retry
		attempt int
		want    time.Duration
	}{
		"nothing said":               {Retry{}, 1, 0},
		"no backoff":                 {Retry{Interval: 2 * s}, 9, 2 * s},
		"a backoff below one":        {Retry{Interval: 2 * s, Backoff: 0.5}, 9, 2 * s},
		"first":                      {Retry{Interval: 2 * s, Backoff: 3}, 1, 2 * s},
		"second":                     {Retry{Interval: 2 * s, Backoff: 3}, 2, 6 * s},
		"third":                      {Retry{Interval: 2 * s, Backoff: 3}, 3, 18 * s},
		"capped":                     {Retry{Interval: 2 * s, Backoff: 3, MaxInterval: 10 * s}, 3, 10 * s},
		"a first wait over the cap":  {Retry{Interval: 20 * s, MaxInterval: 10 * s}, 1, 10 * s},
		"beyond any clock":           {Retry{Interval: s, Backoff: 10}, 1000, 1 << 62},
		"a million attempts, capped": {Retry{Interval: s, Backoff: 2, MaxInterval: 60 * s}, 1e6, 60 * s},
	} {
		if got := c.r.Wait(ID{1}, "a", c.attempt); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestRetryJitterIsBoundedAndRepeats(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := Retry{Interval: time.Hour, Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter")}
		id, attempt := genID().Draw(t, "run"), rapid.IntRange(1, 50).Draw(t, "attempt")
		wait := r.Wait(id, "a", attempt)
		if wait != r.Wait(id, "a", attempt) {
			t.Fatal("the same attempt waits differently")
		}
		if share := float64(wait)/float64(time.Hour) - 1; share < -r.Jitter-1e-12 || share > r.Jitter+1e-12 {
			t.Fatalf("moved by %f of at most %f", share, r.Jitter)
		}
	})
	r := Retry{Interval: time.Hour, Jitter: 1}
	seen := map[time.Duration]bool{}
	for attempt := range 50 {
		seen[r.Wait(ID{1}, "a", attempt)] = true
		seen[r.Wait(ID{1}, "b", attempt)] = true
		seen[r.Wait(ID{2}, "a", attempt)] = true
	}
	if len(seen) != 150 {
		t.Errorf("%d waits of 150 differ", len(seen))
	}
}
