package configs

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/expr-lang/expr/types"

	"github.com/apollo-11/apollo/events"
)

var (
	secretRef  = regexp.MustCompile(`^secret://[a-z0-9][a-z0-9_-]{0,127}$`)
	headerName = regexp.MustCompile(`^header:[A-Za-z0-9-]{1,100}$`)
)

func (b *builder) buildTriggers(n *node) {
	if n == nil {
		return
	}
	hooks := map[string]*node{}
	for _, item := range n.items {
		if item.kind != mapNode || len(item.entries) != 1 {
			continue
		}
		kind, body := item.entries[0].key.text, item.entries[0].value
		if body.kind != mapNode {
			continue
		}
		t := events.Trigger{Kind: kind}
		switch kind {
		case "webhook":
			t.Webhook = b.webhook(body, hooks)
		case "file":
			t.File = b.fileTrigger(body)
		case "cron":
			b.checkCron(body)
			t.Cron = &events.CronTrigger{Schedule: body.str("schedule"), Timezone: textOr(body, "timezone", "UTC"),
				Missed: textOr(body, "missed", "last"), Overlap: textOr(body, "overlap", "queue")}
		case "pipeline":
			t.Pipeline = b.pipelineTrigger(body)
		case "event":
			t.Event = b.eventTrigger(body)
		}
		b.plan.Triggers = append(b.plan.Triggers, t)
	}
}

func (b *builder) webhook(n *node, hooks map[string]*node) *events.WebhookTrigger {
	w := &events.WebhookTrigger{Path: n.str("path"), Key: n.str("key"), MaxBody: sizeOf(n.get("max_body"))}
	if path := n.get("path"); path != nil && path.kind == scalarNode {
		if first := hooks[path.text]; first != nil {
			b.at(path, "E_HOOK_DUP", "the webhook path "+path.text+" is used already, in line "+strconv.Itoa(first.line), "one webhook a path", "")
		}
		hooks[path.text] = path
	}
	if key := n.get("key"); key != nil && key.kind == scalarNode && !headerName.MatchString(key.text) {
		b.at(key, "E_VALUE", "the key is "+strconv.Quote(shortened(key.text)), "header:<Name>", "as header:X-GitHub-Delivery")
	}
	b.verification(n, w)
	return w
}

func (b *builder) verification(n *node, w *events.WebhookTrigger) {
	verify := n.get("verify")
	if verify == nil {
		b.at(n, "E_HOOK_VERIFY", "the webhook does not say how its sender is verified", "verify: {scheme: …, secret: secret://name}",
			"verify: none accepts posts from anybody, and says so")
		return
	}
	scheme := verify
	w.Scheme = verify.text
	if verify.kind == mapNode {
		w.Scheme, w.Secret = verify.str("scheme"), verify.str("secret")
		if scheme = verify.get("scheme"); scheme == nil {
			return
		}
	}
	secret := verify.get("secret")
	switch {
	case w.Scheme == "none" && secret != nil:
		b.at(secret, "E_HOOK_VERIFY", "the scheme none has a secret", "no secret", "name the scheme that the sender uses")
	case w.Scheme == "none":
		b.warn(scheme.line, scheme.col, "E_HOOK_OPEN", "this webhook accepts posts from anybody", "a signature scheme", "")
	case secret == nil || w.Secret == "":
		b.at(verify, "E_HOOK_VERIFY", "the scheme "+w.Scheme+" has no secret", "secret: secret://name", "")
	default:
		b.checkSecretRef(secret)
	}
}

func (b *builder) checkSecretRef(n *node) {
	if n.kind == scalarNode && !n.isNull() && !secretRef.MatchString(n.text) {
		b.at(n, "E_SECRET_REF", "this is not a reference to a secret", "secret://name", "the secret itself is stored with the server, never in a definition")
	}
}

func (b *builder) fileTrigger(n *node) *events.FileTrigger {
	f := &events.FileTrigger{Settle: durationOf(n.get("settle"), 2*time.Second), AllowEmpty: boolOf(n.get("allow_empty"))}
	watch := n.get("watch")
	if watch == nil || watch.kind != scalarNode || watch.text == "" {
		return f
	}
	if strings.HasSuffix(watch.text, "/") {
		b.at(watch, "E_WATCH", "the watch path ends in a slash", "a file or a pattern", "watch "+watch.text+"* for every file in it")
		return f
	}
	f.Watch = b.absolute(watch.text)
	b.checkWatch(watch, f.Watch)
	return f
}

func (b *builder) checkWatch(n *node, pattern string) {
	dir := filepath.Dir(pattern)
	_, err := filepath.Match(pattern, "")
	switch {
	case err != nil:
		b.at(n, "E_WATCH", "the pattern "+shortened(n.text)+" can't be read", "wildcards * ? [a-z]", "")
	case strings.ContainsAny(dir, "*?["):
		b.at(n, "E_WATCH", "wildcards stand in the directory", "wildcards in the last part only", "one file trigger for each directory")
	case dir == string(filepath.Separator):
		b.at(n, "E_WATCH", "the watch path is in the root directory", "a directory of its own", "")
	case b.options.DataDir != "" && within(dir, b.options.DataDir):
		b.at(n, "E_WATCH", "the watch path is inside the data directory, so runs would trigger themselves", "a directory outside it", "")
	case b.options.CheckFiles:
		b.checkWatchDir(n, dir)
	}
}

func (b *builder) checkWatchDir(n *node, dir string) {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		b.at(n, "E_WATCH", "the directory of "+n.text+" can't be watched: "+reasonOf(err), "a directory that exists", "create it: mkdir -p "+filepath.Dir(n.text))
	case !info.IsDir():
		b.at(n, "E_WATCH", filepath.Dir(n.text)+" is not a directory", "a directory", "")
	case b.options.DataDir != "":
		target, err := filepath.EvalSymlinks(dir)
		if data, dataErr := filepath.EvalSymlinks(b.options.DataDir); err == nil && dataErr == nil && within(target, data) {
			b.at(n, "E_WATCH", "the watch path leads into the data directory, so runs would trigger themselves", "a directory outside it", "")
		}
	}
}

// within reports whether dir is base or below it.
func within(dir, base string) bool {
	if abs, err := filepath.Abs(base); err == nil {
		base = abs
	}
	rel, err := filepath.Rel(base, dir)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

func (b *builder) pipelineTrigger(n *node) *events.PipelineTrigger {
	t := &events.PipelineTrigger{Name: n.str("name"), Outcome: textOr(n, "outcome", "completed")}
	if t.Name != "" && t.Name == b.plan.Pipeline {
		b.at(n.get("name"), "E_TRIGGER_LOOP", "the pipeline triggers itself", "another pipeline", "")
	}
	return t
}

func (b *builder) eventTrigger(n *node) *events.EventTrigger {
	t := &events.EventTrigger{Type: n.str("type"), If: n.str("if")}
	if name := n.get("type"); name != nil && name.kind == scalarNode {
		b.checkEventType(name, t.If)
	}
	if condition := n.get("if"); condition != nil && condition.kind == scalarNode {
		b.compile(bare(condition), types.Map{"event": eventType}, reflect.Bool)
	}
	return t
}

func (b *builder) checkEventType(n *node, condition string) {
	kind, err := events.ParseType(n.text)
	if err != nil {
		var known []string
		for _, t := range events.Types() {
			known = append(known, t.String())
		}
		b.at(n, "E_REF", "there is no event type "+strconv.Quote(shortened(n.text)), "a type of Apollo's events", didYouMean(n.text, known))
		return
	}
	if entity := kind.Entity(); condition == "" && (entity == "run" || entity == "stage" || entity == "artifact" || entity == "delivery") {
		b.at(n, "E_TRIGGER_LOOP", "each run that this starts has such events itself, and starts the next", "a condition", "add if:, as if: event.source == \"/pipelines/other\"")
	}
}
