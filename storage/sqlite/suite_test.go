package sqlite_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/apollo-11/apollo/storage/sqlite"
)

// TestWatermillSuite runs Watermill's official Pub/Sub suite in full.
func TestWatermillSuite(t *testing.T) {
	t.Parallel()
	s, err := sqlite.Open(t.TempDir(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	features := tests.Features{ConsumerGroups: true, GuaranteedOrder: true, GuaranteedOrderWithSingleSubscriber: true, Persistent: true}
	tests.TestPubSub(t, features,
		func(*testing.T) (message.Publisher, message.Subscriber) { return s.Publisher(), s.Subscriber("g") },
		func(_ *testing.T, group string) (message.Publisher, message.Subscriber) {
			return s.Publisher(), s.Subscriber(group)
		})
}
