package sqlite

import "sync"

// wakes signals everyone who waits for commits.
type wakes struct {
	mu    sync.Mutex
	chans map[chan struct{}]struct{}
}

func (w *wakes) signal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.chans {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// Wake gives a channel that is signalled after each commit, until stop is called.
func (s *Store) Wake() (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	w := &s.wakes
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.chans == nil {
		w.chans = map[chan struct{}]struct{}{}
	}
	w.chans[ch] = struct{}{}
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.chans, ch)
	}
}
