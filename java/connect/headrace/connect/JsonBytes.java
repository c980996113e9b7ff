package headrace.connect;

import java.util.Arrays;
import org.apache.kafka.connect.errors.DataException;

/** Bytes of JSON that grow, in UTF-8. Text is escaped as Jackson does it. */
final class JsonBytes {
    private static final int KEPT = 1 << 20;
    private static final byte[] HEX = {'0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'};
    /** Of characters below 128: 0 as it is, -1 as a code, otherwise the letter after the backslash. */
    private static final byte[] ESCAPES = new byte[128];

    static {
        Arrays.fill(ESCAPES, 0, 32, (byte) -1);
        ESCAPES['\b'] = 'b';
        ESCAPES['\t'] = 't';
        ESCAPES['\n'] = 'n';
        ESCAPES['\f'] = 'f';
        ESCAPES['\r'] = 'r';
        ESCAPES['"'] = '"';
        ESCAPES['\\'] = '\\';
    }

    private byte[] bytes = new byte[1024];
    private int size;

    void clear() {
        size = 0;
        if (bytes.length > KEPT) {
            bytes = new byte[1024];
        }
    }

    int size() {
        return size;
    }

    byte[] bytes() {
        return bytes;
    }

    byte[] copy() {
        return Arrays.copyOf(bytes, size);
    }

    void add(char ascii) {
        reserve(1);
        bytes[size++] = (byte) ascii;
    }

    void addAll(byte[] more) {
        reserve(more.length);
        System.arraycopy(more, 0, bytes, size, more.length);
        size += more.length;
    }

    @SuppressWarnings("deprecation")
    void addAscii(String text) {
        int length = text.length();
        reserve(length);
        text.getBytes(0, length, bytes, size);
        size += length;
    }

    void addLong(long number) {
        if (number == Long.MIN_VALUE) {
            addAscii(Long.toString(number));
            return;
        }
        reserve(20);
        if (number < 0) {
            bytes[size++] = '-';
            number = -number;
        }
        int digits = 1;
        for (long limit = 10; digits < 19 && number >= limit; limit *= 10) {
            digits++;
        }
        for (int at = size + digits - 1; at >= size; at--) {
            bytes[at] = (byte) ('0' + number % 10);
            number /= 10;
        }
        size += digits;
    }

    void addText(String text) {
        int length = text.length();
        reserve(6L * length + 2);
        byte[] to = bytes;
        int at = size;
        to[at++] = '"';
        for (int i = 0; i < length; i++) {
            char c = text.charAt(i);
            if (c >= 128) {
                at = beyondAscii(c, to, at);
            } else if (ESCAPES[c] == 0) {
                to[at++] = (byte) c;
            } else {
                at = escaped(c, to, at);
            }
        }
        to[at++] = '"';
        size = at;
    }

    private static int escaped(char c, byte[] to, int at) {
        if (ESCAPES[c] < 0) {
            return coded(c, to, at);
        }
        to[at++] = '\\';
        to[at++] = ESCAPES[c];
        return at;
    }

    /** In UTF-8; characters beyond 16 bits are two codes. */
    private static int beyondAscii(char c, byte[] to, int at) {
        if (Character.isSurrogate(c)) {
            return coded(c, to, at);
        }
        if (c < 0x800) {
            to[at++] = (byte) (0xC0 | c >> 6);
        } else {
            to[at++] = (byte) (0xE0 | c >> 12);
            to[at++] = (byte) (0x80 | c >> 6 & 0x3F);
        }
        to[at++] = (byte) (0x80 | c & 0x3F);
        return at;
    }

    private static int coded(char c, byte[] to, int at) {
        to[at++] = '\\';
        to[at++] = 'u';
        for (int shift = 12; shift >= 0; shift -= 4) {
            to[at++] = HEX[c >> shift & 15];
        }
        return at;
    }

    private void reserve(long more) {
        long wanted = size + more;
        if (wanted <= bytes.length) {
            return;
        }
        if (wanted > Integer.MAX_VALUE - 8) {
            throw new DataException("a value of more than 2 GiB");
        }
        bytes = Arrays.copyOf(bytes, (int) Math.min(Integer.MAX_VALUE - 8, Math.max(wanted, 2L * bytes.length)));
    }
}
