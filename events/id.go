package events

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// ID is a UUIDv7 in its 16-byte form. It names events, runs and deliveries; the zero ID means "none".
type ID [16]byte

// IsZero reports whether the id names nothing.
func (id ID) IsZero() bool { return id == ID{} }

// String gives the canonical 36-character form, or "" for the zero ID.
func (id ID) String() string {
	if id.IsZero() {
		return ""
	}
	var b [36]byte
	hex.Encode(b[0:8], id[0:4])
	hex.Encode(b[9:13], id[4:6])
	hex.Encode(b[14:18], id[6:8])
	hex.Encode(b[19:23], id[8:10])
	hex.Encode(b[24:36], id[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// ParseID reads the canonical 36-character form. It is strict: lower-case hexadecimal and dashes in their places.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return ID{}, fmt.Errorf("parse id %q: not a UUID", s)
	}
	packed := s[0:8] + s[9:13] + s[14:18] + s[19:23] + s[24:36]
	if _, err := hex.Decode(id[:], []byte(packed)); err != nil || id.String() != s {
		return ID{}, fmt.Errorf("parse id %q: not a UUID in lower-case hexadecimal", s)
	}
	return id, nil
}

// MarshalText implements encoding.TextMarshaler with the canonical form.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler; the empty text is the zero ID.
func (id *ID) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*id = ID{}
		return nil
	}
	parsed, err := ParseID(string(text))
	*id = parsed
	return err
}

// Digest is a SHA-256 digest. Its text form is "sha256:" and 64 hexadecimal digits; the zero Digest means "none".
type Digest [32]byte

// DigestOf hashes content.
func DigestOf(content []byte) Digest { return sha256.Sum256(content) }

// IsZero reports whether the digest names nothing.
func (d Digest) IsZero() bool { return d == Digest{} }

// String gives "sha256:<hex>", or "" for the zero Digest.
func (d Digest) String() string {
	if d.IsZero() {
		return ""
	}
	return "sha256:" + hex.EncodeToString(d[:])
}

// ParseDigest reads the "sha256:<hex>" form.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	const prefix = "sha256:"
	if len(s) != len(prefix)+64 || s[:len(prefix)] != prefix {
		return Digest{}, fmt.Errorf("parse digest %q: expected sha256: and 64 hexadecimal digits", s)
	}
	if _, err := hex.Decode(d[:], []byte(s[len(prefix):])); err != nil || d.String() != s {
		return Digest{}, fmt.Errorf("parse digest %q: expected lower-case hexadecimal digits", s)
	}
	return d, nil
}

// MarshalText implements encoding.TextMarshaler with the "sha256:<hex>" form.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler; the empty text is the zero Digest.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*d = Digest{}
		return nil
	}
	parsed, err := ParseDigest(string(text))
	*d = parsed
	return err
}
