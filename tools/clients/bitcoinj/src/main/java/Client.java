import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Proxy;
import java.net.Socket;
import java.util.concurrent.TimeUnit;
import javax.net.SocketFactory;
import org.bitcoinj.core.BlockChain;
import org.bitcoinj.core.Peer;
import org.bitcoinj.core.PeerAddress;
import org.bitcoinj.core.PeerGroup;
import org.bitcoinj.net.BlockingClientManager;
import org.bitcoinj.params.RegTestParams;
import org.bitcoinj.store.MemoryBlockStore;

/**
 * Downloads a chain with bitcoinj, which speaks v1 only, from one node of regtest through a SOCKS5 proxy.
 * Arguments: the proxy's port, the node's port, the number of its blocks; both are at 127.0.0.1. Exits with 0
 * once it has the last block.
 */
public final class Client {
    private static final long SECONDS = 60;

    /** Opens sockets that connect through the proxy. */
    private static final class Through extends SocketFactory {
        private final Proxy proxy;

        Through(int port) {
            proxy = new Proxy(Proxy.Type.SOCKS, new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
        }

        @Override
        public Socket createSocket() {
            return new Socket(proxy);
        }

        @Override
        public Socket createSocket(String host, int port) throws IOException {
            return createSocket(InetAddress.getByName(host), port);
        }

        @Override
        public Socket createSocket(String host, int port, InetAddress from, int fromPort) throws IOException {
            return createSocket(host, port);
        }

        @Override
        public Socket createSocket(InetAddress host, int port) throws IOException {
            Socket socket = createSocket();
            socket.connect(new InetSocketAddress(host, port));
            return socket;
        }

        @Override
        public Socket createSocket(InetAddress host, int port, InetAddress from, int fromPort) throws IOException {
            return createSocket(host, port);
        }
    }

    public static void main(String[] arguments) throws Exception {
        int proxy = Integer.parseInt(arguments[0]);
        int node = Integer.parseInt(arguments[1]);
        int blocks = Integer.parseInt(arguments[2]);
        RegTestParams params = RegTestParams.get();
        BlockChain chain = new BlockChain(params.network(), new MemoryBlockStore(params.getGenesisBlock()));
        // Only subclasses may choose how to connect.
        PeerGroup group = new PeerGroup(params.network(), chain, new BlockingClientManager(new Through(proxy))) {};
        group.setUseLocalhostPeerWhenPossible(false);
        group.setBloomFilteringEnabled(false);
        group.setMaxConnections(1);
        group.addAddress(PeerAddress.simple(InetAddress.getLoopbackAddress(), node));
        group.startAsync().get(SECONDS, TimeUnit.SECONDS);
        // A group asks no lone peer for blocks, so ask it here.
        Peer peer = group.waitForPeers(1).get(SECONDS, TimeUnit.SECONDS).get(0);
        peer.setDownloadData(true);
        peer.startBlockChainDownload();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        while (chain.getBestChainHeight() < blocks && System.nanoTime() < end) {
            Thread.sleep(50);
        }
        if (chain.getBestChainHeight() != blocks) {
            System.err.println("error: " + chain.getBestChainHeight() + " of " + blocks + " blocks");
            System.exit(1);
        }
        System.out.println("bitcoinj: " + blocks + " blocks");
        System.exit(0);
    }
}
