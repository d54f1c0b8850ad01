// Where shardkit stores an item, for services in Java 17 and newer, with nothing but the JDK.
import java.io.*;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.security.*;
import java.util.*;
import java.util.stream.Stream;

public final class ShardkitKey {
    /** A value as DynamoDB has it: its type (S, N or B), and its text in UTF-8 or its bytes. */
    public record Value(char type, byte[] content) {
        String text() {
            return new String(content, StandardCharsets.UTF_8);
        }

        /** A number is hashed as it is in full, without trailing zeros: equal numbers have equal texts. */
        byte[] hashed() {
            if (type != 'N') return content;
            BigDecimal number = new BigDecimal(text());
            String full = number.signum() == 0 ? "0" : number.stripTrailingZeros().toPlainString();
            return full.getBytes(StandardCharsets.US_ASCII);
        }

        int compareTo(Value other) {
            if (type != 'N') return Arrays.compareUnsigned(content, other.content);
            return new BigDecimal(text()).compareTo(new BigDecimal(other.text()));
        }
    }

    /** The hash of a value: 64 bits, to be read as unsigned. */
    public static long stableHash(Value value) throws NoSuchAlgorithmException {
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(value.hashed());
        return java.nio.ByteBuffer.wrap(digest).getLong();
    }

    /** The hash of several values, as of a tuple. */
    public static long stableHash(List<Value> values) throws NoSuchAlgorithmException, IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream written = new DataOutputStream(bytes);
        for (Value value : values) {
            written.writeByte(value.type);
            written.writeInt(value.hashed().length);
            written.write(value.hashed());
        }
        return stableHash(new Value('B', bytes.toByteArray()));
    }

    /** The suffix of CalculatedSuffix, from the hash of an item's attribute (or attributes) {@code by}. */
    public static String calculatedSuffix(long hash, String separator, int first, int shards) {
        return separator + (first + Long.remainderUnsigned(hash, shards));
    }

    /** The suffix of RangeSuffix, from an item's sort key: named after the highest boundary up to it. */
    public static String rangeSuffix(Value sortKey, String separator, List<Value> boundaries) {
        String name = "x";
        for (Value boundary : boundaries)
            if (boundary.compareTo(sortKey) <= 0) name = "x" + HexFormat.of().formatHex(boundary.hashed());
        return separator + name;
    }

    /** Answers the lines of tests/functional/test_other_languages.py. */
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] fields = line.split(" ");
            boolean tuple = fields[1].startsWith("T");
            List<Value> given = Stream.of(fields[1].split(",")).skip(tuple ? 1 : 0).map(ShardkitKey::read).toList();
            long hash = tuple ? stableHash(given) : stableHash(given.get(0));
            System.out.println(switch (fields[0]) {
                case "hash" -> Long.toUnsignedString(hash);
                case "ranges" -> rangeSuffix(given.get(0), fields[2], Stream.of(fields).skip(3).map(ShardkitKey::read).toList());
                default -> calculatedSuffix(hash, fields[2], Integer.parseInt(fields[3]), Integer.parseInt(fields[4]));
            });
        }
    }

    private static Value read(String field) {
        return new Value(field.charAt(0), Base64.getDecoder().decode(field.substring(2)));
    }
}
