// Package artifacts keeps bytes by their SHA-256 digest. It is where everything lives that is too long for the event
// log: webhook bodies, dropped files, the outputs of stages, the evidence of failures.
//
// Layout, below the directory that Open is given:
//
//	sha256/ab/cdef…   one artifact: mode 0444, named by its digest, never changed after it has its name
//	tmp/…             artifacts on their way in; what is left here after a kill is never read
//
// Promises:
//
//   - Under a final name there is always a whole artifact: bytes go to tmp, are synced, then renamed, then the
//     directory is synced. Put and PutFile return only after that, so an acknowledged artifact survives a power cut.
//   - Storing the same bytes again is a success that changes nothing, from any number of goroutines.
//   - Reads are checked: a reader that reaches the end, and every CopyTo, has compared the bytes with the digest.
//   - Nothing is reached through a symbolic link, and no name leads out of the directory (os.Root).
//   - An artifact shares its bytes with no file that a stage can write to: what comes in with a second hard link is copied,
//     and one is made only for a caller that keeps the reader from writing (Placing.Shared).
//   - A directory is the manifest of what lies in it: two with the same names, bytes and programs have the same digest.
package artifacts
