// Where shardkit stores an item, for services in Go, with nothing but its standard library.
package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/big"
	"os"
	"strconv"
	"strings"
)

// Value is as DynamoDB has it: its type (S, N or B), and its text in UTF-8 or its bytes.
type Value struct {
	Type    byte
	Content []byte
}

func (v Value) number() *big.Rat {
	number, _ := new(big.Rat).SetString(string(v.Content))
	return number
}

// A number is hashed as it is in full, without trailing zeros: equal numbers have equal texts.
func (v Value) hashed() []byte {
	if v.Type != 'N' {
		return v.Content
	}
	return []byte(strings.TrimRight(strings.TrimRight(v.number().FloatString(1000), "0"), "."))
}

func (v Value) compare(other Value) int {
	if v.Type != 'N' {
		return bytes.Compare(v.Content, other.Content)
	}
	return v.number().Cmp(other.number())
}

func first64(content []byte) uint64 {
	digest := sha256.Sum256(content)
	return binary.BigEndian.Uint64(digest[:8])
}

// StableHash is the hash of a value.
func StableHash(value Value) uint64 { return first64(value.hashed()) }

// StableHashOf is the hash of several values, as of a tuple.
func StableHashOf(values ...Value) uint64 {
	var all []byte
	for _, value := range values {
		content := value.hashed()
		all = binary.BigEndian.AppendUint32(append(all, value.Type), uint32(len(content)))
		all = append(all, content...)
	}
	return first64(all)
}

// CalculatedSuffix is the suffix of this strategy, from the hash of an item's attribute (or attributes) `by`.
func CalculatedSuffix(hash uint64, separator string, first, shards uint64) string {
	return separator + strconv.FormatUint(first+hash%shards, 10)
}

// RangeSuffix is the suffix of this strategy, from an item's sort key: named after the highest boundary up to it.
func RangeSuffix(sortKey Value, separator string, boundaries []Value) string {
	name := "x"
	for _, boundary := range boundaries {
		if boundary.compare(sortKey) <= 0 {
			name = fmt.Sprintf("x%x", boundary.hashed())
		}
	}
	return separator + name
}

func read(fields []string) []Value {
	var values []Value
	for _, field := range fields {
		content, _ := base64.StdEncoding.DecodeString(field[2:])
		values = append(values, Value{field[0], content})
	}
	return values
}

// Answers the lines of tests/functional/test_other_languages.py.
func main() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fields := strings.Split(lines.Text(), " ")
		var hash uint64
		given := strings.Split(fields[1], ",")
		if given[0] == "T" {
			hash = StableHashOf(read(given[1:])...)
		} else {
			hash = StableHash(read(given)[0])
		}
		switch fields[0] {
		case "hash":
			fmt.Println(hash)
		case "ranges":
			fmt.Println(RangeSuffix(read(given)[0], fields[2], read(fields[3:])))
		default:
			first, _ := strconv.ParseUint(fields[3], 10, 64)
			shards, _ := strconv.ParseUint(fields[4], 10, 64)
			fmt.Println(CalculatedSuffix(hash, fields[2], first, shards))
		}
	}
}
