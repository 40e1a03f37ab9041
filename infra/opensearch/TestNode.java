import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.CountDownLatch;

import org.opensearch.analysis.common.CommonAnalysisPlugin;
import org.opensearch.common.logging.LogConfigurator;
import org.opensearch.common.settings.Settings;
import org.opensearch.index.mapper.MapperExtrasPlugin;
import org.opensearch.index.reindex.ReindexPlugin;
import org.opensearch.knn.plugin.KNNPlugin;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.painless.PainlessPlugin;
import org.opensearch.plugins.Plugin;
import org.opensearch.transport.Netty4Plugin;

/** A single OpenSearch node on loopback, its plugins taken from the class path. Arguments: home folder, port. */
public final class TestNode extends Node {
    private TestNode(Settings settings, Collection<Class<? extends Plugin>> plugins) {
        super(InternalSettingsPreparer.prepareEnvironment(settings, java.util.Map.of(), null, () -> "agent-memory"),
                plugins, false);
    }

    public static void main(String[] arguments) throws Exception {
        Path home = Path.of(arguments[0]);
        Files.createDirectories(home.resolve("config"));
        Settings settings = Settings.builder()
                .put("path.home", home.toString())
                .put("cluster.name", "agent-memory-test")
                .put("discovery.type", "single-node")
                .put("network.host", "127.0.0.1")
                .put("http.port", arguments[1])
                .put("transport.port", "0")
                .put("transport.type", "netty4")
                .put("http.type", "netty4")
                .put("cluster.routing.allocation.disk.threshold_enabled", false)
                .build();
        TestNode node = new TestNode(settings, List.of(
                Netty4Plugin.class, CommonAnalysisPlugin.class, PainlessPlugin.class,
                ReindexPlugin.class, MapperExtrasPlugin.class, KNNPlugin.class));
        node.start();
        CountDownLatch ended = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                node.close();
            } catch (IOException error) {
                error.printStackTrace();
            }
            ended.countDown();
        }));
        System.out.println("started");
        ended.await();
    }
}
