package configs

import "time"

// workDefaults are the settings of a kind of work that declares none. Work that fetches waits for others: it gets a long
// time-out, so that a hung connection ends at last, and retries soon. Work that computes fails for reasons that last:
// it has no time-out, since only its author knows how long it may take, and retries late.
type workDefaults struct {
	timeout     time.Duration // 0 is none
	interval    time.Duration // before the first retry, when retry is declared
	maxInterval time.Duration
	network     string // empty is not said: allowed
}

var defaultsByExecutor = map[string]workDefaults{
	"http":      {timeout: 5 * time.Minute, interval: 2 * time.Second, maxInterval: time.Minute},
	"shell":     {interval: 10 * time.Second, maxInterval: 10 * time.Minute},
	"task":      {interval: 10 * time.Second, maxInterval: 10 * time.Minute},
	"python":    {interval: 30 * time.Second, maxInterval: 30 * time.Minute},
	"container": {interval: 30 * time.Second, maxInterval: 30 * time.Minute, network: "none"},
	"pipeline":  {interval: 30 * time.Second, maxInterval: 30 * time.Minute},
}

// defaultsOf gives the defaults of an executor; a plugin is work that computes, as a shell script is, unless its manifest
// has a time-out. A container has no network unless the stage says so, since what it needs can be in its image.
func (b *builder) defaultsOf(executor string) workDefaults {
	d, known := defaultsByExecutor[executor]
	if !known {
		d = defaultsByExecutor["shell"]
		if p := b.options.plugin(executor); p != nil {
			d.timeout = p.Timeout
		}
	}
	return d
}
