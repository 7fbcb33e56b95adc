package sqlite

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/apollo-11/apollo/storage"
)

// SQLite takes the first frame of a write-ahead log that does not fit its checksum for the end of the log, and drops
// what follows without a word. After a power cut that is right: the last transaction was cut off before anybody was told
// that it is durable. A frame with whole transactions behind it was synced, so that it is damaged.

const (
	walHeader   = 32
	frameHeader = 24
)

// checkWAL reads the write-ahead log of a store that is about to be opened. It gives storage.ErrCorrupt for certain
// damage, and a warning when the last transaction does not fit: it was cut off, or is damaged.
func checkWAL(path string) (warning string, err error) {
	for range 3 { // what a process is writing just now looks broken once, not three times
		if warning, err = readWAL(path); err == nil && warning == "" {
			break
		}
	}
	return warning, err
}

func readWAL(path string) (warning string, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // it was only read
	r := walReader{r: io.Reader(f)}
	header := make([]byte, walHeader)
	if _, err := io.ReadFull(f, header); err != nil || bytes.Equal(header, make([]byte, walHeader)) {
		return "", nil // nothing was ever committed to it
	}
	if !r.begin(header) {
		return "", fmt.Errorf("%w: header of the write-ahead log", storage.ErrCorrupt)
	}
	return r.frames()
}

type walReader struct {
	r     io.Reader
	order binary.ByteOrder
	salts []byte
	sum   [2]uint32
	frame []byte
}

func (w *walReader) begin(header []byte) bool {
	w.order = binary.LittleEndian
	if header[3]&1 == 1 {
		w.order = binary.BigEndian
	}
	w.salts = header[16:24]
	w.sum = w.add([2]uint32{}, header[:24])
	size := binary.BigEndian.Uint32(header[8:])
	if binary.BigEndian.Uint32(header)&^1 != 0x377f0682 || w.sum != stored(header[24:]) || size < 512 || size > 1<<16 {
		return false
	}
	w.frame = make([]byte, frameHeader+size)
	return true
}

func stored(b []byte) [2]uint32 {
	return [2]uint32{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])}
}

// add is SQLite's checksum of the log.
func (w *walReader) add(sum [2]uint32, b []byte) [2]uint32 {
	for ; len(b) >= 8; b = b[8:] {
		sum[0] += w.order.Uint32(b) + sum[1]
		sum[1] += w.order.Uint32(b[4:]) + sum[0]
	}
	return sum
}

// frames follows the checksums. A frame of this log has at least one of its two salts; the others are left from before.
func (w *walReader) frames() (warning string, err error) {
	bad, commits := 0, 0 // first frame that does not fit, transactions that end behind it
	for n := 1; ; n++ {
		if _, err := io.ReadFull(w.r, w.frame); err != nil {
			break // the end, or a frame that was not written to its end
		}
		if !bytes.Equal(w.frame[8:12], w.salts[:4]) && !bytes.Equal(w.frame[12:16], w.salts[4:]) {
			break
		}
		sum := stored(w.frame[16:])
		fits := bytes.Equal(w.frame[8:16], w.salts) && w.add(w.add(w.sum, w.frame[:8]), w.frame[frameHeader:]) == sum
		w.sum = sum
		switch {
		case !fits && bad == 0:
			bad = n
		case fits && bad > 0 && commits > 0:
			return "", fmt.Errorf("%w: frame %d of the write-ahead log, with committed transactions behind it", storage.ErrCorrupt, bad)
		case fits && bad > 0 && binary.BigEndian.Uint32(w.frame[4:]) != 0:
			commits++
		}
	}
	if bad > 0 {
		return fmt.Sprintf("the last transaction in the write-ahead log does not fit its checksum (frame %d): it was cut off before it was durable, or is damaged", bad), nil
	}
	return "", nil
}
