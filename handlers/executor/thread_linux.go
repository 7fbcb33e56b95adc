package executor

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// thread is a thread of the engine that is given up: what is taken from it never comes back, and what it starts inherits
// that. It lives until it is ended, since the kernel ends a process with the thread that started it. The runtime makes no
// thread from a locked one, so that no other thread of the engine inherits anything.
type thread struct{ over chan struct{} }

// newThread has a new thread do something, and returns when that is done.
func newThread(do func()) *thread {
	t := &thread{over: make(chan struct{})}
	done := make(chan struct{})
	go t.live(do, done)
	<-done
	return t
}

// live never unlocks the thread, which therefore ends with the goroutine. The first thread of the process cannot end, and
// stands for the whole process in /proc: it is held while the goroutine that does the work finds itself another.
func (t *thread) live(do func(), done chan<- struct{}) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		elsewhere := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(elsewhere)
			t.give(do, done)
		}()
		<-elsewhere
		runtime.UnlockOSThread()
		return
	}
	t.give(do, done)
}

func (t *thread) give(do func(), done chan<- struct{}) {
	do()
	close(done)
	<-t.over
}

// replace has the runtime make another thread, unless one is idle, before the next attempt waits for it.
func (t *thread) replace() {
	if t != nil {
		go func() {}()
	}
}

// end lets the thread go. It may be called on none.
func (t *thread) end() {
	if t != nil {
		close(t.over)
	}
}
