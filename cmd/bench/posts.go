package bench

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// postBody is about a kilobyte of JSON, as a small push is.
var postBody = fmt.Appendf(nil, `{"ref":"refs/heads/main","before":"%040d","after":"%040d","repository":{"id":1152921506151679042,"full_name":"apollo/eleven"},"commits":[%s]}`,
	1, 2, strings.TrimSuffix(strings.Repeat(`{"id":"0123456789abcdef0123456789abcdef01234567","message":"one small step"},`, 9), ","))

// post sends one signed delivery and gives its status.
func post(ctx context.Context, c *http.Client, address, signature string, n int64) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(postBody))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Hub-Signature-256", signature)
	req.Header.Set("X-Github-Delivery", fmt.Sprintf("delivery-%d", n))
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Body.Close()
}

func signature() string {
	mac := hmac.New(sha256.New, []byte(hookSecret))
	mac.Write(postBody)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// webhooks posts with `connect` clients for a time, or `runs` posts in all. Only 202 counts as accepted.
func (s *Subject) webhooks(ctx context.Context, l Load) (Done, error) {
	if err := s.register(tasks("hook", 1, false)); err != nil {
		return Done{}, err
	}
	address, stop, err := s.hooks("hook")
	if err != nil {
		return Done{}, err
	}
	defer stop()
	client := &http.Client{Transport: &http.Transport{MaxIdleConns: l.Connect, MaxIdleConnsPerHost: l.Connect, MaxConnsPerHost: l.Connect}}
	defer client.CloseIdleConnections()
	sign := signature()
	var next, accepted, lost atomic.Int64
	var all times
	var mu sync.Mutex
	var clients sync.WaitGroup
	begin := time.Now()
	more := func(n int64) bool {
		return l.Runs > 0 && n <= int64(l.Runs) || l.Runs == 0 && time.Since(begin) < l.For
	}
	go s.drain(ctx)
	for range l.Connect {
		clients.Go(func() {
			var own times
			for n := next.Add(1); more(n); n = next.Add(1) {
				t := time.Now()
				status, err := post(ctx, client, address, sign, n)
				for err == nil && status == http.StatusTooManyRequests { // said to come again: it does, and is not lost
					status, err = post(ctx, client, address, sign, n)
				}
				if err != nil || status != http.StatusAccepted {
					lost.Add(1)
					continue
				}
				accepted.Add(1)
				own = append(own, time.Since(t))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
		})
	}
	clients.Wait()
	took := time.Since(begin)
	return Done{Accepted: accepted.Load(), Count: lost.Load(), Took: took, P50: all.p50(), P99: all.p99(), Samples: len(all)}, nil
}

// drain takes the ends of runs that nobody waits for.
func (s *Subject) drain(ctx context.Context) {
	for {
		select {
		case <-s.watch.ended:
		case <-ctx.Done():
			return
		}
	}
}

// process measures from the post to the first stage's process.
func (s *Subject) process(ctx context.Context, l Load) (Done, error) {
	if err := s.register(script("hook", "true")); err != nil {
		return Done{}, err
	}
	address, stop, err := s.hooks("hook")
	if err != nil {
		return Done{}, err
	}
	defer stop()
	client := &http.Client{}
	defer client.CloseIdleConnections()
	sign := signature()
	var all times
	for n := range int64(l.Runs) {
		begin := time.Now()
		if status, err := post(ctx, client, address, sign, n); err != nil || status != http.StatusAccepted {
			return Done{}, fmt.Errorf("post: %d, %w", status, err)
		}
		all = append(all, (<-s.watch.started).Sub(begin))
		<-s.watch.ended
	}
	return Done{Accepted: int64(l.Runs), Count: int64(l.Runs), P50: all[1:].p50(), P99: all[1:].p99(), Samples: len(all) - 1}, nil
}
