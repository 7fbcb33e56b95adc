package executor

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// thread is a thread of the engine that is given up to one attempt: what is taken from it never comes back, and what it
// starts inherits that. It stays alive until it is ended, since the kernel ends the stage's process with the thread that
// started it. The runtime makes no thread from a locked one, so that no other thread of the engine inherits anything.
type thread struct {
	work chan func()
	done chan struct{}
}

func newThread() *thread {
	t := &thread{work: make(chan func()), done: make(chan struct{}, 1)}
	go t.live()
	return t
}

// live never unlocks the thread, which therefore ends with the goroutine. The first thread of the process cannot end, and
// stands for the whole process in /proc: it is held while the goroutine that does the work finds itself another.
func (t *thread) live() {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		t.serve()
		return
	}
	elsewhere := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		close(elsewhere)
		t.serve()
	}()
	<-elsewhere
	runtime.UnlockOSThread()
}

func (t *thread) serve() {
	for f := range t.work {
		f()
		t.done <- struct{}{}
	}
}

// begin has the thread do something; await waits until it is done.
func (t *thread) begin(f func()) { t.work <- f }

func (t *thread) await() { <-t.done }

func (t *thread) do(f func()) {
	t.begin(f)
	t.await()
}

func (t *thread) end() { close(t.work) }
