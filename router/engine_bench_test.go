package router_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/schedule"
	"github.com/apollo-11/apollo/handlers/trigger"
	"github.com/apollo-11/apollo/router"
	"github.com/apollo-11/apollo/storage/sqlite"
)

// BenchmarkChains measures five-stage runs of no-op tasks on SQLite, many and one at a time. One iteration is a run.
func BenchmarkChains(b *testing.B) {
	for name, flight := range map[string]int{"1": 1, "256": 256, "512": 512} {
		b.Run(name, func(b *testing.B) { benchChains(b, flight) })
	}
}

func benchChains(b *testing.B, flight int) {
	store, err := sqlite.Open(b.TempDir(), sqlite.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	slots := make(chan struct{}, flight)
	ended := router.Handler{Name: "ended", Topics: []events.Type{events.RunCompleted}, Handle: func(msg *message.Message) ([]*message.Message, error) {
		if _, ok := schedule.WorkOf(msg); ok {
			<-slots
		}
		return nil, nil
	}}
	uuid.EnableRandPool()
	e, err := router.New(router.Options{Store: store, Runner: runner{}, Clock: time.Now, Logger: zerolog.Nop(), Handlers: []router.Handler{ended},
		NewID: func() events.ID { return events.ID(uuid.Must(uuid.NewV7())) }})
	if err != nil {
		b.Fatal(err)
	}
	_ = e.Register(router.Pipeline{Plan: chain("p", "a", "b", "c", "d", "e")})
	if err := e.Start(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for range b.N {
		slots <- struct{}{}
		go func() {
			if _, err := e.Accept(context.Background(), &trigger.Delivery{Kind: "manual", Trigger: "manual", Pipeline: "p"}); err != nil {
				b.Error(err)
			}
		}()
	}
	for range flight {
		slots <- struct{}{}
	}
	b.ReportMetric(float64(b.N*5)/b.Elapsed().Seconds(), "stages/s")
	b.StopTimer()
	_ = e.Stop(context.Background())
}
