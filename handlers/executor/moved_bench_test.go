package executor

import (
	"os"
	"testing"
)

// BenchmarkMoved is what the count of bytes adds to a stage.
func BenchmarkMoved(b *testing.B) {
	for b.Loop() {
		if read, _ := moved(os.Getpid()); read == 0 {
			b.Fatal("nothing was read")
		}
	}
}
