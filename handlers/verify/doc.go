// Package verify executes the stages of a run again, each alone from its recorded inputs and under changed conditions, and
// says whether the results are the recorded ones, and what they depend on when they are not. It reads the run and its
// artifacts and changes neither: what it makes lies in a scratch directory of its own.
package verify
