//go:build !linux

package artifacts

import "os"

func writeBack(*os.File, int64, int64) {}
