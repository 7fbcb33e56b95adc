package storetest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

func message1(topic string) storage.Outgoing {
	return storage.Outgoing{Topic: topic, Message: message.NewMessage("m1", []byte("payload"))}
}

// oneConflict lets many callers commit at once, every third with a batch that cannot be stored.
func oneConflict(t *testing.T, s storage.Store) {
	g, plan := Plan("p", 1)
	results := make([]error, 90)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range results {
		m := &Maker{Salt: uint32(i)}
		f := m.Begin(g, plan, m.ID())
		f.Finish()
		b := f.Take()
		if i%3 == 0 {
			b.Events = b.Events[1:] // a gap
		}
		wg.Go(func() {
			<-start
			results[i] = s.Commit(b)
		})
	}
	close(start)
	wg.Wait()
	for i, err := range results {
		if bad := i%3 == 0; bad != errors.Is(err, storage.ErrConflict) || !bad && err != nil {
			t.Errorf("batch %d: %v", i, err)
		}
	}
	if rows := got[[]storage.RunRow](t)(s.Runs(t.Context(), storage.RunFilter{Page: storage.Page{Limit: 100}})); len(rows) != 60 {
		t.Errorf("%d runs of 60", len(rows))
	}
}

// concurrentCommits lets runs of several callers grow at once, while a reader follows the log by its last position.
func concurrentCommits(t *testing.T, s storage.Store) {
	g, plan := Plan("p", 4)
	var wg sync.WaitGroup
	const callers, runs = 8, 6
	for i := range callers {
		m := &Maker{Salt: uint32(i)}
		wg.Go(func() {
			for range runs {
				f := m.Begin(g, plan, m.ID())
				for f.Decide(); f.Running() >= 0; f.Report(f.Running(), events.StageCompleted) {
					if err := s.Commit(f.Take()); err != nil {
						t.Error(err)
					}
				}
				if err := s.Commit(f.Take()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	follow(t, s, done, callers*runs*(2+8+1))
	sound(t, s)
}

// follow reads the log as it grows: positions ascend, streams have no gaps, nothing is missed.
func follow(t *testing.T, s storage.Store, done <-chan struct{}, want int) {
	t.Helper()
	wake, stop := s.Wake()
	defer stop()
	last, seen, sequences := int64(0), 0, map[events.ID]uint64{}
	page := make([]storage.Record, 50)
	for ended := false; ; {
		n, err := s.Scan(context.Background(), last, page)
		must(t, err)
		for i := range n {
			if r := &page[i]; r.Position <= last || r.Sequence != sequences[r.Stream]+1 {
				t.Fatalf("position %d after %d, sequence %d after %d", r.Position, last, r.Sequence, sequences[r.Stream])
			}
			last = page[i].Position
			sequences[page[i].Stream]++
			seen++
		}
		switch {
		case n > 0:
		case ended:
			if seen != want || s.Head() != last {
				t.Fatalf("%d events of %d, head %d of %d", seen, want, s.Head(), last)
			}
			return
		default:
			select {
			case <-wake:
			case <-done:
				ended = true
			}
		}
	}
}

// readsDuringWrites reads whole runs while others are committed: a run is there with all its stages or not at all.
func readsDuringWrites(t *testing.T, s storage.Store) {
	g, plan := Plan("p", 3)
	done := make(chan struct{})
	go func() {
		defer close(done)
		m := &Maker{}
		for range 100 {
			f := m.Begin(g, plan, m.ID())
			f.Finish()
			if err := s.Commit(f.Take()); err != nil {
				t.Error(err)
			}
		}
	}()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				rows, err := s.Runs(context.Background(), storage.RunFilter{})
				if err != nil {
					t.Error(err)
					return
				}
				for _, r := range rows[:min(5, len(rows))] {
					stages, err := s.Stages(context.Background(), r.ID)
					log, err2 := s.Events(context.Background(), r.ID, 0, 100)
					if err != nil || err2 != nil || len(stages) != 3 || uint64(len(log)) != r.Sequence {
						t.Errorf("%d stages, %d events of %d, %v, %v", len(stages), len(log), r.Sequence, err, err2)
						return
					}
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	wg.Wait()
	<-done
}

func wake(t *testing.T, s storage.Store) {
	signal, stop := s.Wake()
	other, stopOther := s.Wake()
	m := &Maker{}
	g, plan := Plan("p", 1)
	for range 3 { // nobody takes the signals: commits go on
		must(t, s.Commit(m.Begin(g, plan, m.ID()).Take()))
	}
	for _, ch := range []<-chan struct{}{signal, other} {
		select {
		case <-ch:
		case <-time.After(10 * time.Second):
			t.Fatal("no signal after a commit")
		}
	}
	stopOther()
	must(t, s.Commit(m.Begin(g, plan, m.ID()).Take()))
	<-signal
	select {
	case <-other:
		t.Error("a signal after stop")
	default:
	}
	stop()
	stop()
}

// next gives the next message, or fails.
func next(t *testing.T, from <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case m := <-from:
		return m
	case <-time.After(20 * time.Second):
		t.Fatal("no message came")
		return nil
	}
}

// cloudEvents subscribes to an event type: what comes is CloudEvents JSON that reads back as the event.
func cloudEvents(t *testing.T, s storage.Store) {
	m := &Maker{}
	g, plan := Plan("orders", 2)
	delivery := m.ID()
	f := m.Begin(g, plan, delivery)
	f.Finish()
	b := f.Take()
	sub := s.Subscriber("g")
	defer func() { must(t, sub.Close()) }()
	messages, err := sub.Subscribe(t.Context(), events.StageCompleted.String())
	must(t, err)
	must(t, s.Commit(b))
	for i := range b.Events {
		want := b.Events[i].Event
		if want.Type != events.StageCompleted {
			continue
		}
		msg := next(t, messages)
		have, origin, err := events.ParseCloudEvent(msg.Payload)
		must(t, err)
		same(t, "event", want, have)
		env, err := events.ParseEnvelope(msg.Payload)
		must(t, err)
		if env.Source != "/pipelines/orders" || origin.Correlation != delivery || msg.UUID != want.ID.String() || msg.Metadata.Get("stream") != f.ID.String() || msg.Metadata.Get("type") != want.Type.String() {
			t.Errorf("%+v %s %v", env, msg.UUID, msg.Metadata)
		}
		msg.Ack()
	}
	if err := s.Publisher().Publish(events.RunCreated.String(), message1("").Message); err == nil {
		t.Error("an event came into the log without its chain")
	}
}

// publishAfterTheUnit publishes with the context of a message whose unit of work is over: it is not lost.
func publishAfterTheUnit(t *testing.T, s storage.Store) {
	pub, sub := s.Publisher(), s.Subscriber("g")
	defer func() { must(t, sub.Close()) }()
	first, err := sub.Subscribe(t.Context(), "first")
	must(t, err)
	second, err := sub.Subscribe(t.Context(), "second")
	must(t, err)
	for i := range 3 {
		must(t, pub.Publish("first", message.NewMessage(fmt.Sprint(i), nil)))
		msg := next(t, first)
		inside := message.NewMessage(fmt.Sprint("inside ", i), nil)
		inside.SetContext(msg.Context())
		must(t, pub.Publish("second", inside))
		msg.Ack()
		m := next(t, second)
		if m.UUID != inside.UUID {
			t.Fatalf("%s came, not %s", m.UUID, inside.UUID)
		}
		m.Ack()
		late := message.NewMessage(fmt.Sprint("late ", i), nil)
		late.SetContext(msg.Context()) // the unit has been committed: second has its message
		must(t, pub.Publish("second", late))
		m = next(t, second)
		if m.UUID != late.UUID {
			t.Fatalf("%s came, not %s", m.UUID, late.UUID)
		}
		m.Ack()
	}
}

func rebuildEqualsLive(t *testing.T, s storage.Store) {
	herd(t, s, 20)
	m := &Maker{Salt: 9}
	_, b := m.Delivery(events.DeliveryHeld, events.Data{Pipeline: "p", Kind: "manual", Trigger: "manual"})
	must(t, s.Commit(b))
	sound(t, s)
}

func checkFindsNothing(t *testing.T, s storage.Store) {
	sound(t, s)
	herd(t, s, 11)
	must(t, s.Publisher().Publish("topic", message1("").Message))
	sound(t, s)
}

// sound: every row is what the log says, and fsck finds nothing.
func sound(t *testing.T, s storage.Store) {
	t.Helper()
	if d := got[[]storage.Difference](t)(s.Rebuild(t.Context(), false)); len(d) != 0 {
		t.Errorf("rebuilt rows differ: %+v", d)
	}
	must(t, s.Check(t.Context(), func(p storage.Problem) { t.Errorf("%+v", p) }))
}

// rebuildMends spoils rows, one by one: each is found, and mended.
func rebuildMends(t *testing.T, s storage.Store) {
	rows := herd(t, s, 10)
	m := &Maker{Salt: 9}
	delivery, b := m.Delivery(events.DeliveryReceived, events.Data{Pipeline: "p", Kind: "webhook", Trigger: "x", Key: "k"})
	must(t, s.Commit(b))
	run := rows[2] // a completed and a running run
	if rows[7].State != events.Completed {
		t.Fatalf("%s", rows[7].State)
	}
	run.Reason, run.Sequence, run.Ended = "spoiled", run.Sequence+1, run.Ended+1
	stage := got[[]storage.StageRow](t)(s.Stages(t.Context(), rows[7].ID))[0]
	stage.Attempt = 77
	spoilt := delivery
	spoilt.Fate = "ignored"
	for table, b := range map[string]*storage.Batch{"runs": {Runs: []storage.RunRow{run}}, "stages": {Stages: []storage.StageRow{stage}}, "deliveries": {Deliveries: []storage.DeliveryRow{spoilt}}} {
		must(t, s.Commit(b))
		named := 0
		must(t, s.Check(t.Context(), func(storage.Problem) { named++ }))
		d := got[[]storage.Difference](t)(s.Rebuild(t.Context(), false))
		if len(d) != 1 || d[0].Table != table || named != 1 {
			t.Fatalf("%s spoiled: %+v, %d problems", table, d, named)
		}
		if d := got[[]storage.Difference](t)(s.Rebuild(t.Context(), true)); len(d) != 1 {
			t.Fatalf("%s: %+v", table, d)
		}
		sound(t, s)
	}
	same(t, "runs", rows, got[[]storage.RunRow](t)(s.Runs(t.Context(), storage.RunFilter{})))
	same(t, "by key", delivery, got[storage.DeliveryRow](t)(s.DeliveryByKey(t.Context(), delivery.KeyHash)))
}

// rebuildDuringCommits rebuilds while runs move: it finds nothing wrong and puts no old row in the place of a new one.
func rebuildDuringCommits(t *testing.T, s storage.Store) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		m := &Maker{}
		g, plan := Plan("p", 5)
		for range 40 {
			f := m.Begin(g, plan, m.ID())
			for f.Decide(); f.Running() >= 0; f.Report(f.Running(), events.StageCompleted) {
				if err := s.Commit(f.Take()); err != nil {
					t.Error(err)
				}
			}
			if err := s.Commit(f.Take()); err != nil {
				t.Error(err)
			}
		}
	}()
	for i, ended := 0, false; !ended; i++ {
		select {
		case <-done:
			ended = true
		default:
		}
		if d := got[[]storage.Difference](t)(s.Rebuild(t.Context(), i%2 == 0)); len(d) != 0 {
			t.Errorf("differs: %+v", d)
		}
	}
	sound(t, s)
}

func backupRefusesToOverwrite(t *testing.T, s storage.Store) {
	herd(t, s, 5)
	to := filepath.Join(t.TempDir(), "copy.db")
	must(t, s.Backup(t.Context(), to))
	if s.Backup(t.Context(), to) == nil {
		t.Error("a backup was overwritten")
	}
}
