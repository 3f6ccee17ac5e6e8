import java.util.Arrays;
import java.util.Scanner;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * Load for bookies that run already. Reads one order a line, answers with one number a line:
 *   many SIZE SECONDS -> entries a second, closed loop, as many outstanding as WINDOW_ENTRIES and WINDOW_BYTES allow
 *   depth1 SIZE COUNT -> median wait in microseconds
 * Arguments: the address of ZooKeeper, and v2 or v3 for the wire protocol.
 */
public class BookKeeperDriver {
    private static final int WINDOW_ENTRIES = 2000;
    private static final int WINDOW_BYTES = 16 << 20;

    public static void main(String[] arguments) throws Exception {
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setMetadataServiceUri("zk+null://" + arguments[0] + "/ledgers");
        configuration.setUseV2WireProtocol(arguments[1].equals("v2"));
        configuration.setThrottleValue(0);
        configuration.setAddEntryTimeout(30);
        try (BookKeeper client = new BookKeeper(configuration)) {
            System.out.println("ready");
            Scanner orders = new Scanner(System.in);
            while (orders.hasNext()) {
                String order = orders.next();
                int size = orders.nextInt();
                int amount = orders.nextInt();
                try (LedgerHandle ledger = client.createLedger(3, 3, 2, BookKeeper.DigestType.CRC32C, new byte[0])) {
                    System.out.println(order.equals("many") ? many(ledger, size, amount) : depth1(ledger, size, amount));
                }
            }
        }
    }

    private static byte[] payload(int size) {
        byte[] payload = new byte[size];
        new java.util.Random(7).nextBytes(payload);
        return payload;
    }

    private static double many(LedgerHandle ledger, int size, int seconds) throws Exception {
        byte[] payload = payload(size);
        int window = Math.max(64, Math.min(WINDOW_ENTRIES, WINDOW_BYTES / size));
        Semaphore free = new Semaphore(window);
        AtomicReference<String> failure = new AtomicReference<>();
        long begin = System.nanoTime();
        long end = begin + seconds * 1_000_000_000L;
        long count = 0;
        while (System.nanoTime() < end && failure.get() == null) {
            free.acquire();
            ledger.asyncAddEntry(payload, (code, handle, entry, context) -> {
                if (code != BKException.Code.OK) {
                    failure.set(BKException.getMessage(code));
                }
                free.release();
            }, null);
            count++;
        }
        free.acquire(window);
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
        return count * 1e9 / (System.nanoTime() - begin);
    }

    private static double depth1(LedgerHandle ledger, int size, int count) throws Exception {
        byte[] payload = payload(size);
        long[] waits = new long[count];
        for (int number = 0; number < count; number++) {
            long begin = System.nanoTime();
            ledger.addEntry(payload);
            waits[number] = System.nanoTime() - begin;
        }
        Arrays.sort(waits);
        return waits[count / 2] / 1000.0;
    }
}
