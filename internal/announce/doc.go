// Package announce says on the console of node rank 0 what a job is when it starts, and how it succeeded. A job that
// goes well prints these two lines and nothing else. A failure ends with the report instead, and with one line about
// the job's goodput.
//
// [Start] and [Success] format the lines and are pure. [Announcer] is the sink of events that prints them. The agent
// emits from one goroutine at a time, so an Announcer has no lock.
package announce
