package sqlite_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
	"github.com/apollo-11/apollo/storage/storetest"
)

func message1() *message.Message { return message.NewMessage("m1", []byte("payload")) }

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

// TestPoisonIsParked refuses one event as often as it comes: it is parked after the cap, what its handler published
// for it is dropped, and the rest goes on.
func TestPoisonIsParked(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), sqlite.Options{Redeliveries: 2, Clock: func() time.Time { return time.Unix(7, 0) }})
	pub, sub := s.Publisher(), s.Subscriber("mail")
	created, err := sub.Subscribe(t.Context(), events.RunCreated.String())
	must(t, err)
	results, err := sub.Subscribe(t.Context(), "results")
	must(t, err)
	ids := fill(t, s, 3)
	for i, deliveries := range []int{1, 3, 1} {
		for n := range deliveries {
			msg := next(t, created)
			if msg.Metadata.Get("stream") != ids[i].String() {
				t.Fatalf("run %d, delivery %d: %s", i, n, msg.Metadata.Get("stream"))
			}
			out := message.NewMessage(fmt.Sprint("result ", i), nil)
			out.SetContext(msg.Context())
			must(t, pub.Publish("results", out))
			if i == 1 {
				msg.Nack()
				continue
			}
			msg.Ack()
		}
	}
	for _, want := range []string{"result 0", "result 2"} {
		msg := next(t, results)
		if msg.UUID != want {
			t.Errorf("%s, not %s", msg.UUID, want)
		}
		msg.Ack()
	}
	log, err := s.Events(t.Context(), ids[1], 0, 1)
	must(t, err)
	want := storage.ParkedRow{Event: log[0].ID, Stream: ids[1], Handler: "mail", Reason: "refused 3 times by the consumer group", At: 7e9}
	if parked, err := s.Parked(t.Context()); err != nil || len(parked) != 1 || parked[0] != want {
		t.Errorf("%+v %v", parked, err)
	}
	must(t, sub.Close())
	must(t, s.Check(t.Context(), func(p storage.Problem) { t.Errorf("%+v", p) }))
}

// TestOtherMessagesAreNeverParked: the cap is for events, which the log still holds.
func TestOtherMessagesAreNeverParked(t *testing.T) {
	t.Parallel()
	for _, o := range []sqlite.Options{{Redeliveries: 1}, {}} {
		s := open(t, t.TempDir(), o)
		sub := s.Subscriber("g")
		messages, err := sub.Subscribe(t.Context(), "topic")
		must(t, err)
		m := message1()
		m.Metadata.Set("type", events.RunCreated.String()) // a name is no proof
		must(t, s.Publisher().Publish("topic", m))
		for range 10 {
			next(t, messages).Nack()
		}
		next(t, messages).Ack()
		must(t, sub.Close())
	}
}

// TestRareTopicIsFound: what was searched in vain is passed over, what comes later is not.
func TestRareTopicIsFound(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), sqlite.Options{})
	messages, err := s.Subscriber("g").Subscribe(t.Context(), events.DeliveryHeld.String())
	must(t, err)
	m := &storetest.Maker{Salt: 5}
	for range 20 {
		fill1(t, s, m)
		row, b := m.Delivery(events.DeliveryHeld, events.Data{Pipeline: "p"})
		must(t, s.Commit(b))
		msg := next(t, messages)
		if msg.Metadata.Get("stream") != row.ID.String() {
			t.Fatal("another event")
		}
		msg.Ack()
	}
}

func fill1(t testing.TB, s storage.Store, m *storetest.Maker) {
	t.Helper()
	g, plan := storetest.Plan("p", 2)
	f := m.Begin(g, plan, m.ID())
	f.Finish()
	must(t, s.Commit(f.Take()))
}
