// Package announce says on the console of node rank 0 what a job is when it starts, and how it has succeeded. A job
// that goes well prints these two lines and nothing else; a failure ends with the report instead.
//
// [Start] and [Success] are the lines, as pure functions of what they say. [Announcer] is the sink of events that
// prints them. The agent emits from one goroutine at a time, so an Announcer has no lock.
package announce
